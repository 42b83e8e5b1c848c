//! Requests one after another against vLLM's CPU offloading tier (0.33.0, `vllm/v1/kv_offload`), alone.
//!
//! A request loads the leading keys that are there and then stores all its full prompt blocks: those already
//! there stay, the others need room, all or nothing.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::key_index::{KeyHasher, KeyMap};
use super::linked_keys::LinkedKeys;
use super::requests::Requests;
use crate::causes::engine::{Lookup, MissCauses};
use crate::causes::eviction_log::EvictionLog;

/// Keys that a store may not evict.
#[derive(Debug, Default)]
pub struct OfferedKeys(HashSet<u64, BuildHasherDefault<KeyHasher>>);

impl OfferedKeys {
    /// Whether the key is one of them.
    pub fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }
}

/// Lengths of ARC's lists, and its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArcSizes {
    /// Keys used once.
    pub t1: u64,
    /// Keys used again.
    pub t2: u64,
    /// Ghosts of t1.
    pub b1: u64,
    /// Ghosts of t2.
    pub b2: u64,
    /// The size that t1 strives for.
    pub target: f64,
}

/// Which keys stay.
pub trait OffloadPolicy {
    /// Keys in the tier.
    fn resident(&self) -> usize;
    /// Whether a key is in the tier.
    fn contains(&self, key: u64) -> bool;
    /// Learns the keys about to be stored, in order.
    fn offer(&mut self, keys: &[u64]);
    /// Removes `blocks` keys that are not offered, or none and returns None.
    fn evict(&mut self, blocks: usize, offered: &OfferedKeys) -> Option<Vec<u64>>;
    /// Adds a key.
    fn insert(&mut self, key: u64);
    /// Refreshes one key of a finished request; they come last to first.
    fn finish(&mut self, key: u64, is_new: bool);
    /// The sizes of ARC's lists, where the policy has them.
    fn arc_sizes(&self) -> Option<ArcSizes> {
        None
    }
}

/// How many keys the counter of offers remembers (vLLM's `max_tracker_size`).
const TRACKED_KEYS: usize = 64_000;

/// Counts how often a key was offered, of the keys offered most recently.
struct OfferCounts {
    threshold: u32,
    recent: LinkedKeys,
    counts: KeyMap<u64, u32>,
}

impl OfferCounts {
    fn new(threshold: u32) -> Self {
        Self {
            threshold,
            recent: LinkedKeys::default(),
            counts: KeyMap::default(),
        }
    }

    /// The keys that have been offered often enough, this time included; all, below a threshold of 2.
    fn often(&mut self, keys: Vec<u64>) -> Vec<u64> {
        if self.threshold < 2 {
            return keys;
        }
        for &key in &keys {
            if !self.recent.contains(key) && self.recent.len() == TRACKED_KEYS {
                if let Some(oldest) = self.recent.pop() {
                    self.counts.remove(&oldest);
                }
            }
            self.recent.push(key);
            *self.counts.entry(key).or_insert(0) += 1;
        }
        let enough = |key: &u64| {
            self.counts
                .get(key)
                .is_some_and(|&count| count >= self.threshold)
        };
        keys.into_iter().filter(enough).collect()
    }
}

/// What a replay decided, in blocks (vLLM's chunks).
#[derive(Debug)]
pub struct OffloadReplay {
    /// Hit tokens of each request.
    pub hits: Vec<i64>,
    /// Blocks stored.
    pub stored: u64,
    /// Blocks evicted.
    pub evicted: u64,
    /// Stores refused for want of room.
    pub refused: u64,
    /// ARC's lists at the end.
    pub arc: Option<ArcSizes>,
    /// Reasons of the misses, where asked for.
    pub causes: Option<MissCauses>,
}

/// Replays every request against a tier of `capacity` blocks; the window is not used.
pub fn replay(
    requests: &Requests<'_>,
    policy: &mut dyn OffloadPolicy,
    capacity: usize,
    store_threshold: u32,
) -> OffloadReplay {
    let keys = requests.keys;
    let mut causes = requests.causes();
    let mut log = requests.log();
    let mut counts = OfferCounts::new(store_threshold);
    let mut result = OffloadReplay {
        hits: vec![],
        stored: 0,
        evicted: 0,
        refused: 0,
        arc: None,
        causes: None,
    };
    for request in 0..keys.requests() {
        let n = requests.input_tokens[request as usize];
        let full = (n / u64::from(requests.block_size)) as u32;
        let all: Vec<u64> = (0..full).map(|block| keys.key(request, block)).collect();
        let limit = requests.limit(request);
        let found = all[..limit as usize]
            .iter()
            .take_while(|&&key| policy.contains(key))
            .count() as u32;
        result
            .hits
            .push(i64::from(found) * i64::from(requests.block_size));
        if let (Some(causes), Some(log)) = (&mut causes, &mut log) {
            log.now = request;
            let lookup = Lookup {
                request,
                input_tokens: n,
                hits: found,
                limit,
            };
            causes.count(
                lookup,
                log,
                Some(&|block| policy.contains(all[block as usize])),
            );
            causes.learn(request, full);
        }
        store(policy, counts.often(all), capacity, &mut log, &mut result);
    }
    result.arc = policy.arc_sizes();
    result.causes = causes;
    result
}

/// Stores the keys of one request and finishes it.
fn store(
    policy: &mut dyn OffloadPolicy,
    keys: Vec<u64>,
    capacity: usize,
    log: &mut Option<EvictionLog>,
    result: &mut OffloadReplay,
) {
    policy.offer(&keys);
    let mut new: OfferedKeys = OfferedKeys::default();
    new.0
        .extend(keys.iter().copied().filter(|&key| !policy.contains(key)));
    let shortfall = (policy.resident() + new.0.len()).saturating_sub(capacity);
    let victims = match shortfall {
        0 => Some(Vec::new()),
        _ => policy.evict(shortfall, &OfferedKeys(keys.iter().copied().collect())),
    };
    match victims {
        None => {
            result.refused += 1;
            new.0.clear();
        }
        Some(victims) => {
            result.evicted += victims.len() as u64;
            result.stored += new.0.len() as u64;
            if let Some(log) = log {
                victims.iter().for_each(|&key| log.evicted(key, 1));
            }
            keys.iter()
                .filter(|&&key| new.contains(key))
                .for_each(|&key| policy.insert(key));
        }
    }
    for &key in keys.iter().rev() {
        policy.finish(key, new.contains(key));
    }
}

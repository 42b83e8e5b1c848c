//! vLLM's CPU offloading tier (0.33.0, `vllm/v1/kv_offload`): keys that requests find, load, offer and have
//! used.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::key_index::{KeyHasher, KeyMap};
use super::linked_keys::LinkedKeys;

/// Set of keys for membership tests.
pub(super) type KeySet = HashSet<u64, BuildHasherDefault<KeyHasher>>;

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
    /// Target size of t1.
    pub target: f64,
}

/// Use of a key by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The request stored the key.
    Stored,
    /// The request loaded the key, or offered it while it was present.
    Reused,
    /// The request offered the key, and there was no capacity.
    Refused,
}

/// A key, and a request's use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    /// The key.
    pub key: u64,
    /// Its use.
    pub access: Access,
}

impl KeyUse {
    /// Returns a use of a key.
    pub fn new(key: u64, access: Access) -> Self {
        Self { key, access }
    }
}

/// Keys that a running request has used, by index in its prompt.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct UsedKeys {
    slots: Vec<u32>,
    uses: Vec<KeyUse>,
}

impl UsedKeys {
    /// Returns true if no key was used.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns indices and uses, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, KeyUse)> + '_ {
        self.slots.iter().copied().zip(self.uses.iter().copied())
    }

    /// Returns the use at an index.
    pub fn get(&self, slot: u32) -> Option<KeyUse> {
        self.position(slot).ok().map(|at| self.uses[at])
    }

    /// Sets the use at an index, unless there is one that `stays`.
    pub fn set(&mut self, slot: u32, used: KeyUse, stays: impl Fn(KeyUse) -> bool) {
        match self.position(slot) {
            Ok(at) if stays(self.uses[at]) => (),
            Ok(at) => self.uses[at] = used,
            Err(at) => {
                self.slots.insert(at, slot);
                self.uses.insert(at, used);
            }
        }
    }

    fn position(&self, slot: u32) -> Result<usize, usize> {
        match self.slots.last() {
            Some(&last) if last >= slot => self.slots.binary_search(&slot),
            _ => Err(self.slots.len()),
        }
    }
}

impl FromIterator<(u32, KeyUse)> for UsedKeys {
    fn from_iter<I: IntoIterator<Item = (u32, KeyUse)>>(uses: I) -> Self {
        let mut used = Self::default();
        uses.into_iter()
            .for_each(|(slot, one)| used.set(slot, one, |_| false));
        used
    }
}

impl<const N: usize> From<[(u32, KeyUse); N]> for UsedKeys {
    fn from(uses: [(u32, KeyUse); N]) -> Self {
        uses.into_iter().collect()
    }
}

/// Eviction policy of the tier.
pub trait OffloadPolicy: std::fmt::Debug {
    /// Returns the number of keys in the tier.
    fn resident(&self) -> usize;
    /// Returns true if a key is in the tier.
    fn contains(&self, key: u64) -> bool;
    /// Notifies the policy of the keys about to be stored, in order.
    fn offer(&mut self, keys: &[u64]);
    /// Returns true if it goes by those keys.
    fn learns_offers(&self) -> bool {
        true
    }
    /// Removes `blocks` keys that `is_kept` does not protect; removes none and returns None if there are too
    /// few.
    fn evict(&mut self, blocks: usize, is_kept: &dyn Fn(u64) -> bool) -> Option<Vec<u64>>;
    /// Adds a key.
    fn insert(&mut self, key: u64);
    /// Notifies the policy of the keys that a request has used so far, in order: loaded, or just offered.
    fn access(&mut self, _: &[u64]) {}
    /// Notifies the policy as `access` does, with the request and the indices, above a secondary tier.
    fn access_by(&mut self, _request: u32, _used: &UsedKeys) {}
    /// Refreshes one key of a finished request; they come last to first.
    fn finish(&mut self, key: u64, access: Access);
    /// Forgets a request whose keys have been refreshed.
    fn ended(&mut self, _request: u32) {}
    /// Returns the keys in the tier.
    fn keys(&self) -> Box<dyn Iterator<Item = u64> + '_>;
    /// Returns the sizes of ARC's lists, if the policy has them.
    fn arc_sizes(&self) -> Option<ArcSizes> {
        None
    }
}

/// Policy that a tier owns.
pub type AnyPolicy = dyn OffloadPolicy + Send + Sync;

/// Number of keys that the counter of offers tracks (vLLM's `max_tracker_size`).
const TRACKED_KEYS: usize = 64_000;

/// Counter of offers per key, for the most recently offered keys.
#[derive(Debug)]
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

    /// Returns the keys offered at least `threshold` times, including this offer; all keys below a threshold of
    /// 2.
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

/// Result of an offer.
#[derive(Debug, Default)]
pub struct Offered {
    /// Keys of the offer with their use, in order.
    pub accesses: Vec<KeyUse>,
    /// Keys evicted for the offer.
    pub evicted: Vec<u64>,
    /// Number of keys that were stored.
    pub stored: u64,
    /// True if there was no capacity for the absent keys.
    pub is_refused: bool,
}

/// Tier of `capacity` blocks (vLLM's chunks) under a policy.
#[derive(Debug)]
pub struct OffloadTier {
    /// Policy that holds the keys and selects those to evict.
    pub policy: Box<AnyPolicy>,
    capacity: usize,
    counts: OfferCounts,
}

impl OffloadTier {
    /// An empty tier in which keys are stored from their `store_threshold`-th offer on.
    pub fn new(policy: Box<AnyPolicy>, capacity: usize, store_threshold: u32) -> Self {
        Self {
            policy,
            capacity,
            counts: OfferCounts::new(store_threshold),
        }
    }

    /// Notifies the policy of the keys that a request has used so far, in order.
    pub fn access(&mut self, keys: &[u64]) {
        self.policy.access(keys);
    }

    /// Stores the absent keys of an offer, all or none; keys in use are not evicted.
    pub fn offer(&mut self, keys: Vec<u64>, is_in_use: &dyn Fn(u64) -> bool) -> Offered {
        let keys = self.counts.often(keys);
        self.policy.offer(&keys);
        self.store(keys, is_in_use)
    }

    /// Stores as `offer` does, but notifies the policy only of absent keys that a request has not missed before.
    pub(super) fn offer_once(
        &mut self,
        keys: Vec<u64>,
        missed: &mut KeySet,
        is_in_use: &dyn Fn(u64) -> bool,
    ) -> Offered {
        let keys = self.counts.often(keys);
        if self.policy.learns_offers() {
            let absent = keys.iter().filter(|&&key| !self.policy.contains(key));
            let new: Vec<u64> = absent.copied().filter(|&key| missed.insert(key)).collect();
            self.policy.offer(&new);
        }
        self.store(keys, is_in_use)
    }

    fn store(&mut self, keys: Vec<u64>, is_in_use: &dyn Fn(u64) -> bool) -> Offered {
        let here: Vec<bool> = keys.iter().map(|&key| self.policy.contains(key)).collect();
        let absent = keys.iter().zip(&here).filter(|(_, &is_here)| !is_here);
        let new: Vec<u64> = absent.map(|(&key, _)| key).collect();
        let shortfall = (self.policy.resident() + new.len()).saturating_sub(self.capacity);
        let victims = match shortfall {
            0 => Some(Vec::new()),
            _ => {
                let there = keys.iter().zip(&here).filter(|(_, &is_here)| is_here);
                let offered: KeySet = there.map(|(&key, _)| key).collect();
                let is_kept = |key| offered.contains(&key) || is_in_use(key);
                self.policy.evict(shortfall, &is_kept)
            }
        };
        let is_refused = victims.is_none();
        let missing = if is_refused {
            Access::Refused
        } else {
            Access::Stored
        };
        // what is offered is not evicted for it
        let accesses = keys.iter().zip(here).map(|(&key, is_here)| {
            KeyUse::new(key, if is_here { Access::Reused } else { missing })
        });
        let accesses = accesses.collect();
        if !is_refused {
            new.iter().for_each(|&key| self.policy.insert(key));
        }
        Offered {
            accesses,
            evicted: victims.unwrap_or_default(),
            stored: if is_refused { 0 } else { new.len() as u64 },
            is_refused,
        }
    }

    /// Stores distinct absent keys; keys that are not kept are evicted for them. Returns the number of
    /// evictions.
    pub fn put(&mut self, keys: &[u64], is_kept: &dyn Fn(u64) -> bool) -> u64 {
        let shortfall = (self.policy.resident() + keys.len()).saturating_sub(self.capacity);
        let evicted = self.policy.evict(shortfall, is_kept).unwrap_or_default();
        keys.iter().for_each(|&key| self.policy.insert(key));
        evicted.len() as u64
    }

    /// Refreshes the keys of a finished request, given in order.
    pub fn finish(&mut self, accesses: &[KeyUse]) {
        for used in accesses.iter().rev() {
            self.policy.finish(used.key, used.access);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::offload_lru::OffloadLru;
    use super::*;

    #[test]
    fn offers_are_counted_of_the_64_000_keys_that_were_offered_last() {
        let mut counts = OfferCounts::new(2);
        let next = TRACKED_KEYS as u64;
        assert!(counts.often((0..next).collect()).is_empty());
        assert_eq!(counts.often(vec![0]), [0]); // and is the last one offered
        assert!(counts.often(vec![next]).is_empty()); // 1 is forgotten
        assert!(counts.often(vec![1]).is_empty()); // counted anew, and 2 is forgotten
        assert_eq!(counts.often(vec![3, 2, 0]), [3, 0]);
    }

    #[test]
    fn keys_that_no_request_offers_evict_the_oldest() {
        let mut tier = OffloadTier::new(Box::<OffloadLru>::default(), 3, 0);
        assert_eq!(tier.put(&[0, 1], &|_| false), 0);
        assert_eq!(tier.put(&[2, 3], &|key| key == 0), 1);
        assert_eq!(tier.policy.keys().collect::<Vec<u64>>(), [0, 2, 3]);
    }
}

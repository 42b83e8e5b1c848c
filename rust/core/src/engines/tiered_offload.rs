//! vLLM's CPU tier with a secondary tier below it (0.33.0, `kv_offload/tiering/manager.py`), requests one after
//! another.
//!
//! Every promotion completes before its request is admitted, so the model needs no times.

use super::offload_arc::OffloadArc;
use super::offload_tier::{Access, AnyPolicy, KeySet, KeyUse, UsedKeys};
use super::ranked_lru::RankedLru;
use crate::convert::fit;

/// Counts of the two tiers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TieringCounts {
    /// Keys that requests stored.
    pub stored: u64,
    /// Keys evicted from the CPU tier.
    pub evicted: u64,
    /// Offers refused for lack of capacity.
    pub refused: u64,
    /// Keys promoted from the tier below.
    pub promoted: u64,
    /// Look-ups that would have repeated forever.
    pub aborted: u64,
}

/// Keys that a running request has used.
#[derive(Debug, Default, Clone)]
struct Running {
    /// Used keys by index in the prompt.
    used: UsedKeys,
    /// Absent keys that the request needed capacity for; the policy is notified once of each.
    missed: KeySet,
}

/// CPU tier, and the unbounded tier below: all keys that requests ever stored, from which keys are promoted.
#[derive(Debug)]
pub struct TieredOffload {
    /// Order of the keys in the CPU tier.
    pub policy: Box<AnyPolicy>,
    capacity: usize,
    /// Keys of the tier below.
    pub below: KeySet,
    running: Vec<Running>,
    /// Counts so far.
    pub counts: TieringCounts,
}

impl TieredOffload {
    /// Empty tiers, the CPU tier with `capacity` keys, for a trace of `requests` requests. None for an unknown
    /// policy.
    pub fn new(policy: &str, capacity: usize, requests: u32) -> Option<Self> {
        let policy: Box<AnyPolicy> = match policy {
            "lru" => Box::<RankedLru>::default(),
            "arc" => Box::new(OffloadArc::new(capacity)),
            _ => return None,
        };
        Some(Self::over(policy, capacity, requests))
    }

    pub(super) fn over(policy: Box<AnyPolicy>, capacity: usize, requests: u32) -> Self {
        Self {
            policy,
            capacity,
            below: KeySet::default(),
            running: vec![Running::default(); requests as usize],
            counts: TieringCounts::default(),
        }
    }

    /// Returns true if a key is in the lower tier, which has every key that was ever stored.
    pub fn has(&self, key: u64) -> bool {
        self.below.contains(&key)
    }

    /// Promotes leading keys until a look-up finds all of them. Returns their number.
    ///
    /// `first` is the index of `keys[0]` in the prompt. A look-up evicts a key for each missing key, but none that
    /// is being promoted. It may evict a key that it found before, so several look-ups may be needed. Keys beyond
    /// the tier's capacity, and keys that a policy keeps evicting, would be looked up forever; these look-ups stop.
    pub fn ask(&mut self, request: u32, first: u32, keys: &[u64]) -> u32 {
        let leading = keys.iter().take_while(|&&key| self.has(key)).count();
        let run = &keys[..leading.min(self.capacity)];
        for _ in 0..=run.len() {
            if !self.promote(request, first, run) {
                return fit::<u32>(run.len());
            }
        }
        self.counts.aborted += 1;
        let here = run.iter().take_while(|&&key| self.policy.contains(key));
        fit::<u32>(here.count())
    }

    /// Looks the keys up once. Returns true if any had to be promoted.
    fn promote(&mut self, request: u32, first: u32, run: &[u64]) -> bool {
        let mut moving = KeySet::default();
        for (slot, &key) in (first..).zip(run) {
            if self.policy.contains(key) {
                continue;
            }
            self.learn(request, &[key]);
            let is_kept = |other| other == key || moving.contains(&other);
            let Some(victims) = self.evict_for(1, &is_kept) else {
                break;
            };
            self.policy.insert(key);
            moving.insert(key);
            self.counts.promoted += 1;
            self.counts.evicted += victims;
            // The request's other resident keys share its rank.
            let promoted = KeyUse::new(key, Access::Stored);
            let used = &mut self.running[request as usize].used;
            used.set(slot, promoted, |_| false);
            let used = UsedKeys::from([(slot, promoted)]);
            self.policy.access_by(request, &used);
        }
        !moving.is_empty()
    }

    /// Uses resident keys; keys that the request promoted itself count as stored by it.
    pub fn load(&mut self, request: u32, first: u32, keys: &[u64]) {
        let used = &mut self.running[request as usize].used;
        for (slot, &key) in (first..).zip(keys) {
            used.set(slot, KeyUse::new(key, Access::Reused), |_| true);
        }
        if !used.is_empty() {
            self.policy.access_by(request, used);
        }
    }

    /// Stores the absent keys of an offer, all or none; stored keys are also written to the tier below. Returns false if
    /// refused.
    pub fn offer(&mut self, request: u32, first: u32, keys: &[u64]) -> bool {
        self.learn(request, keys);
        let is_new: Vec<bool> = keys.iter().map(|&key| !self.policy.contains(key)).collect();
        let new = || keys.iter().zip(&is_new).filter(|(_, &is_new)| is_new);
        let offered: KeySet = keys.iter().copied().collect();
        let victims = self.evict_for(new().count(), &|key| offered.contains(&key));
        let missing = match victims {
            Some(_) => Access::Stored,
            None => Access::Refused,
        };
        if let Some(victims) = victims {
            self.counts.evicted += victims;
            self.counts.stored += new().count() as u64;
            for (&key, _) in new() {
                self.policy.insert(key);
                self.below.insert(key);
            }
        } else {
            self.counts.refused += 1;
        }
        let used = &mut self.running[request as usize].used;
        for ((slot, &key), &is_new) in (first..).zip(keys).zip(&is_new) {
            let access = if is_new { missing } else { Access::Reused };
            let stays = |before: KeyUse| before.access != Access::Refused;
            used.set(slot, KeyUse::new(key, access), stays);
        }
        self.policy.access_by(request, used);
        missing == Access::Stored
    }

    /// Refreshes the used keys of a finished request, the first of them last.
    pub fn finish(&mut self, request: u32) {
        let ended = std::mem::take(&mut self.running[request as usize]);
        for (_, used) in ended.used.iter().rev() {
            self.policy.finish(used.key, used.access);
        }
        self.policy.ended(request);
    }

    /// Notifies the policy of keys for which a request needs capacity.
    fn learn(&mut self, request: u32, keys: &[u64]) {
        let missed = &mut self.running[request as usize].missed;
        let unknown: Vec<u64> = keys
            .iter()
            .copied()
            .filter(|key| !missed.contains(key))
            .collect();
        self.policy.offer(&unknown);
        missed.extend(keys.iter().filter(|&&key| !self.policy.contains(key)));
    }

    /// Evicts keys for `new` new keys. Returns the number of evictions, or None, with no change, if too few may
    /// be evicted.
    fn evict_for(&mut self, new: usize, is_kept: &dyn Fn(u64) -> bool) -> Option<u64> {
        let shortfall = (self.policy.resident() + new).saturating_sub(self.capacity);
        let victims = self.policy.evict(shortfall, is_kept)?;
        Some(victims.len() as u64)
    }
}

#[cfg(test)]
mod tests;

//! vLLM's CPU tier in a timed run: its keys in use by copies, and each running request's use of its keys.
//!
//! A caller gives each key of a request a slot, from the head of the prompt to its tail; of several groups the slots of
//! one position are adjacent, the later group's first.

use std::cmp::Reverse;

use super::held_keys::HeldKeys;
use super::offload_tier::{Access, KeySet, KeyUse, OffloadTier, UsedKeys};
use crate::store::Violation;

/// A key, and its slot in a request's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotKey {
    /// The slot.
    pub slot: u32,
    /// The key.
    pub key: u64,
}

/// A running request's use of the tier.
#[derive(Debug, Clone, Default)]
struct Used {
    /// Used keys by slot.
    keys: UsedKeys,
    /// Absent keys that the request offered; the policy is notified once of each.
    missed: KeySet,
}

/// Tier, and the uses of its keys.
#[derive(Debug)]
pub struct UsedTier {
    tier: OffloadTier,
    capacity_blocks: u64,
    /// Keys that copies read or write.
    pub in_use: HeldKeys,
    used: Vec<Used>,
    /// Number of slots of one position.
    groups: u32,
    stored: u64,
    evicted: u64,
}

/// Result of an offer that was not refused.
#[derive(Debug)]
pub struct Stored {
    /// For each key of the offer, true if it is new in the tier.
    pub is_new: Vec<bool>,
    /// Keys evicted for the offer.
    pub evicted: Vec<u64>,
}

impl UsedTier {
    /// An empty tier for a trace of `requests` requests.
    pub fn new(tier: OffloadTier, capacity_blocks: u64, requests: u32) -> Self {
        Self {
            tier,
            capacity_blocks,
            in_use: HeldKeys::default(),
            used: vec![Used::default(); requests as usize],
            groups: 1,
            stored: 0,
            evicted: 0,
        }
    }

    /// Returns the tier for keys of several groups whose positions are merged.
    #[must_use]
    pub fn of_groups(mut self, groups: u32) -> Self {
        self.groups = groups;
        self
    }

    /// Returns true if a key is present.
    pub fn contains(&self, key: u64) -> bool {
        self.tier.policy.contains(key)
    }

    /// Returns the blocks of the tier that are free or not in use.
    pub fn unused_blocks(&self) -> u64 {
        self.capacity_blocks - self.in_use.len() as u64
    }

    /// Uses present keys, with their slots in a request's prompt.
    pub fn load(&mut self, request: u32, keys: impl Iterator<Item = SlotKey>) {
        let used = keys.map(|at| (at.slot, KeyUse::new(at.key, Access::Reused)));
        self.access(request, used.collect());
    }

    /// Stores the absent keys of an offer, with their slots in a request's prompt. Keys that are not ready are not
    /// used: another request's copy still writes them. Returns `None` if refused.
    pub fn offer(
        &mut self,
        request: u32,
        offered: &[SlotKey],
        is_ready: &dyn Fn(u64) -> bool,
    ) -> Option<Stored> {
        let keys = offered.iter().map(|at| at.key).collect();
        let (in_use, used) = (&self.in_use, &mut self.used[request as usize]);
        let is_in_use = |key| in_use.contains(key);
        let done = self.tier.offer_once(keys, &mut used.missed, &is_in_use);
        let accesses = offered.iter().zip(&done.accesses);
        let accesses =
            accesses.filter(|(at, used)| used.access != Access::Reused || is_ready(at.key));
        self.access(
            request,
            accesses.map(|(at, &used)| (at.slot, used)).collect(),
        );
        if done.is_refused {
            return None;
        }
        self.stored += done.stored;
        self.evicted += done.evicted.len() as u64;
        let accesses = done.accesses.iter();
        Some(Stored {
            is_new: accesses.map(|used| used.access == Access::Stored).collect(),
            evicted: done.evicted,
        })
    }

    /// Stores distinct absent keys that no request offers and that fit. Returns the number of evictions.
    pub fn put(&mut self, keys: &[u64]) -> u64 {
        let in_use = &self.in_use;
        let evicted = self.tier.put(keys, &|key| in_use.contains(key));
        self.stored += keys.len() as u64;
        self.evicted += evicted;
        evicted
    }

    /// Refreshes the keys that a finished request has used.
    pub fn finish(&mut self, request: u32) {
        let used = std::mem::take(&mut self.used[request as usize]).keys;
        let mut used: Vec<(u32, KeyUse)> = used.iter().collect();
        // Of equal positions the later group becomes the older.
        if self.groups > 1 {
            used.sort_by_key(|&(slot, _)| (slot / self.groups, Reverse(slot % self.groups)));
        }
        let used: Vec<KeyUse> = used.into_iter().map(|(_, used)| used).collect();
        self.tier.finish(&used);
        self.tier.policy.ended(request);
    }

    /// Adds keys that a request uses now. The policy learns of those that the request has not used before, and of
    /// those just stored; the first use that was not refused is the one that counts at the request's end.
    fn access(&mut self, request: u32, uses: UsedKeys) {
        let used = &mut self.used[request as usize].keys;
        let learns = |slot, at: KeyUse| at.access == Access::Stored || used.get(slot).is_none();
        let new = uses.iter().filter(|&(slot, at)| learns(slot, at));
        self.tier.policy.access_by(request, &new.collect());
        for (slot, at) in uses.iter() {
            used.set(slot, at, |before| before.access != Access::Refused);
        }
    }

    /// Returns the number of keys, of those in use, and of those being written, which is given.
    pub fn counts(&self, writing: u64) -> [u64; 3] {
        let there = self.tier.policy.resident() as u64;
        [there, self.in_use.len() as u64, writing]
    }

    /// Returns the number of keys evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.tier.policy.keys()
    }

    /// Checks that the counts add up and that keys in use are present (I2, I3).
    pub fn check(&self) -> Result<(), Violation> {
        let there = self.tier.policy.resident() as u64;
        if there != self.stored - self.evicted || there > self.capacity_blocks {
            let spare = self.capacity_blocks;
            return Err(format!("I2: {there} of {spare} blocks in the tier"));
        }
        if !self.in_use.all(|key| self.tier.policy.contains(key)) {
            return Err("I3: a block of the tier was evicted while it was copied".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::offload_arc::OffloadArc;
    use super::super::offload_tier::AnyPolicy;
    use super::super::ranked_lru::RankedLru;
    use super::*;

    /// Blocks of full attention end at 4, 8 and 12, those of a window at 10 and 12, as keys and slots of two groups.
    const BLOCKS: [(&str, u32, u32); 5] = [
        ("F4", 4, 0),
        ("F8", 8, 0),
        ("F12", 12, 0),
        ("W10", 10, 1),
        ("W12", 12, 1),
    ];

    fn at(slot: u32, key: u64) -> SlotKey {
        SlotKey { slot, key }
    }

    /// The blocks in the order in which they leave after one request has offered all of them.
    fn leaving(policy: Box<AnyPolicy>, is_finished: bool) -> Vec<&'static str> {
        let mut tier = UsedTier::new(OffloadTier::new(policy, 5, 0), 5, 1).of_groups(2);
        let slots = BLOCKS.iter().map(|&(_, end, group)| 2 * end + 1 - group);
        let offered = slots.zip(0..).map(|(slot, key)| SlotKey { slot, key });
        let offered: Vec<SlotKey> = offered.collect();
        assert!(tier.offer(0, &offered, &|_| true).is_some());
        if is_finished {
            tier.finish(0);
        }
        let left = tier.tier.policy.evict(5, &|_| false).unwrap();
        left.iter().map(|&key| BLOCKS[key as usize].0).collect()
    }

    #[test]
    fn a_request_is_one_order_over_its_groups_from_its_last_position_to_its_first() {
        let lru = || Box::<RankedLru>::default();
        assert_eq!(leaving(lru(), true), ["W12", "F12", "W10", "F8", "F4"]);
        assert_eq!(leaving(lru(), false), ["F12", "W12", "W10", "F8", "F4"]);
        let arc = Box::new(OffloadArc::new(5));
        assert_eq!(leaving(arc, true), ["W12", "F12", "W10", "F8", "F4"]);
    }

    #[test]
    fn arc_learns_once_of_a_key_that_a_request_offers_again() {
        let mut tier = UsedTier::new(OffloadTier::new(Box::new(OffloadArc::new(2)), 2, 0), 2, 3);
        for request in 0..2 {
            let own = u64::from(request) * 2;
            let keys = [at(0, own), at(1, own + 1)];
            assert!(tier.offer(request, &keys, &|_| true).is_some());
        }
        tier.in_use.hold(&[2, 3]);
        for _ in 0..2 {
            assert!(tier.offer(2, &[at(0, 0)], &|_| true).is_none());
            assert_eq!(tier.tier.policy.arc_sizes().unwrap().target, 1.0);
        }
    }

    #[test]
    fn what_a_request_could_not_store_is_not_renewed_at_its_end() {
        let mut tier = UsedTier::new(OffloadTier::new(Box::new(OffloadArc::new(2)), 2, 0), 2, 4);
        assert!(tier.offer(0, &[at(0, 0), at(1, 1)], &|_| true).is_some());
        tier.in_use.hold(&[0, 1]);
        assert!(tier.offer(1, &[at(0, 2)], &|_| true).is_none());
        tier.in_use.release_keys(&[0, 1]);
        for (request, key) in [(2, 2), (3, 3)] {
            assert!(tier.offer(request, &[at(0, key)], &|_| true).is_some());
        }
        for request in [2, 3, 1] {
            tier.finish(request);
        }
        assert_eq!(tier.keys().collect::<Vec<u64>>(), [2, 3]);
    }
}

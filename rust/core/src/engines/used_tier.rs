//! vLLM's CPU tier in a timed run: its keys in use by copies, and each running request's use of its keys.

use super::held_keys::HeldKeys;
use super::offload_tier::{Access, OffloadTier};
use crate::store::contract::TierOccupancy;
use crate::store::Violation;

/// Position of a key in a prompt: its cache group, and its block there.
pub type GroupSlot = (usize, u32);

/// Use of the blocks of its groups by a request.
type Used = Vec<Vec<Option<(u64, Access)>>>;

/// Tier, and the uses of its keys.
#[derive(Debug)]
pub struct UsedTier {
    tier: OffloadTier,
    capacity_blocks: u64,
    /// Keys that copies read or write.
    pub in_use: HeldKeys,
    used: Vec<Used>,
    stored: u64,
    evicted: u64,
}

/// Result of an offer that was not refused.
#[derive(Debug)]
pub struct Stored {
    /// For each key of the offer, true if it is new in the tier.
    pub is_new: Vec<bool>,
    /// Number of keys evicted for the offer.
    pub evicted: u64,
}

impl UsedTier {
    /// An empty tier for a trace of `requests` requests.
    pub fn new(tier: OffloadTier, capacity_blocks: u64, requests: u32) -> Self {
        Self {
            tier,
            capacity_blocks,
            in_use: HeldKeys::default(),
            used: vec![Used::new(); requests as usize],
            stored: 0,
            evicted: 0,
        }
    }

    /// Returns true if a key is present.
    pub fn contains(&self, key: u64) -> bool {
        self.tier.policy.contains(key)
    }

    /// Returns the blocks of the tier that are free or not in use.
    pub fn unused_blocks(&self) -> u64 {
        self.capacity_blocks - self.in_use.len() as u64
    }

    /// Uses present keys, at the given positions of a request's prompt.
    pub fn load(&mut self, request: u32, keys: impl Iterator<Item = (GroupSlot, u64)>) {
        for (slot, key) in keys {
            self.use_key(request, slot, (key, Access::Reused));
        }
        self.access(request);
    }

    /// Stores the absent keys of an offer, with their positions in a request's prompt. Returns `None` if
    /// refused.
    pub fn offer(&mut self, request: u32, offered: &[(GroupSlot, u64)]) -> Option<Stored> {
        let keys = offered.iter().map(|&(_, key)| key).collect();
        let in_use = &self.in_use;
        let done = self.tier.offer(keys, &|key| in_use.contains(key));
        for (&(slot, _), &access) in offered.iter().zip(&done.accesses) {
            let known = self.used[request as usize]
                .get(slot.0)
                .and_then(|of_group| of_group.get(slot.1 as usize));
            if matches!(known, None | Some(None | Some((_, Access::Refused)))) {
                self.use_key(request, slot, access);
            }
        }
        self.access(request);
        if done.is_refused {
            return None;
        }
        let evicted = done.evicted.len() as u64;
        self.stored += done.stored;
        self.evicted += evicted;
        let accesses = done.accesses.iter();
        Some(Stored {
            is_new: accesses
                .map(|&(_, access)| access == Access::Stored)
                .collect(),
            evicted,
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
        let used = std::mem::take(&mut self.used[request as usize]);
        let used: Vec<(u64, Access)> = used.into_iter().flatten().flatten().collect();
        self.tier.finish(&used);
    }

    fn use_key(&mut self, request: u32, (group, block): GroupSlot, used: (u64, Access)) {
        let all = &mut self.used[request as usize];
        if all.len() <= group {
            all.resize(group + 1, Vec::new());
        }
        let of_group = &mut all[group];
        if of_group.len() <= block as usize {
            of_group.resize(block as usize + 1, None);
        }
        of_group[block as usize] = Some(used);
    }

    /// Notifies the policy of the keys that a request has used so far, group by group.
    fn access(&mut self, request: u32) {
        let used = self.used[request as usize].iter().flatten().flatten();
        let keys: Vec<u64> = used.map(|&(key, _)| key).collect();
        self.tier.access(&keys);
    }

    /// Returns the use of the blocks; `writing_blocks` of them are being written.
    pub fn occupancy(&self, writing_blocks: u64) -> TierOccupancy {
        let there = self.tier.policy.resident() as u64;
        let in_use = self.in_use.len() as u64;
        TierOccupancy {
            free: self.capacity_blocks - there,
            held: in_use - writing_blocks,
            cached: there - in_use,
            in_flight: writing_blocks,
            private: 0,
        }
    }

    /// Returns the number of keys evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the number of keys for which a predicate holds.
    pub fn count(&self, is_so: impl Fn(u64) -> bool) -> u64 {
        self.tier.policy.keys().filter(|&key| is_so(key)).count() as u64
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

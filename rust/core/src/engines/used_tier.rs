//! vLLM's CPU tier while time passes: its keys in use by copies, and what each running request did with its keys.

use super::held_keys::HeldKeys;
use super::offload_tier::{Access, OffloadTier};
use crate::store::contract::TierOccupancy;
use crate::store::Violation;

/// Where a key stands in a prompt: its cache group, and its block there.
pub type GroupSlot = (usize, u32);

/// What a request did with the blocks of its groups.
type Used = Vec<Vec<Option<(u64, Access)>>>;

/// The tier and who uses it.
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

/// What became of an offer that was not refused.
#[derive(Debug)]
pub struct Stored {
    /// By key of the offer, whether it is new in the tier.
    pub is_new: Vec<bool>,
    /// How many keys were evicted for them.
    pub evicted: u64,
}

impl UsedTier {
    /// An empty tier for a trace of so many requests.
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

    /// Whether a key is there.
    pub fn contains(&self, key: u64) -> bool {
        self.tier.policy.contains(key)
    }

    /// Keys of the tier that are not in use, and room for others.
    pub fn unused_blocks(&self) -> u64 {
        self.capacity_blocks - self.in_use.len() as u64
    }

    /// Uses keys that are there, at these places of a request's prompt.
    pub fn load(&mut self, request: u32, keys: impl Iterator<Item = (GroupSlot, u64)>) {
        for (slot, key) in keys {
            self.use_key(request, slot, (key, Access::Reused));
        }
        self.access(request);
    }

    /// Stores keys that are not there; `None` where room is refused. They have these places in a request's prompt.
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

    /// Stores different keys that are not there, which no request offers and for which there is room; how many were
    /// evicted.
    pub fn put(&mut self, keys: &[u64]) -> u64 {
        let in_use = &self.in_use;
        let evicted = self.tier.put(keys, &|key| in_use.contains(key));
        self.stored += keys.len() as u64;
        self.evicted += evicted;
        evicted
    }

    /// Lets what a request has used count once more.
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

    /// Tells the policy what a request has used so far, group by group.
    fn access(&mut self, request: u32) {
        let used = self.used[request as usize].iter().flatten().flatten();
        let keys: Vec<u64> = used.map(|&(key, _)| key).collect();
        self.tier.access(&keys);
    }

    /// How its blocks are used, of which so many are being written.
    pub fn occupancy(&self, writing_blocks: u64) -> TierOccupancy {
        let there = self.tier.policy.resident() as u64;
        TierOccupancy {
            free: self.capacity_blocks - there,
            active: 0,
            cached: there - writing_blocks,
            in_flight: writing_blocks,
            evictable: there - self.in_use.len() as u64,
        }
    }

    /// Keys evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many of its keys something holds of.
    pub fn count(&self, is_so: impl Fn(u64) -> bool) -> u64 {
        self.tier.policy.keys().filter(|&key| is_so(key)).count() as u64
    }

    /// Checks that it adds up and that keys in use are there (I2, I3).
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

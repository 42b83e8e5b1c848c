//! vLLM's CPU offloading tier (0.33.0, `kv_offload/cpu`) below its pool, in a timed run.

use super::below::{Below, InParts, Prompt, Site};
use super::copied_pool::{CopiedPool, Copy};
use super::held_keys::HeldKeys;
use super::offload_tier::{Access, OffloadTier};
use crate::machine_store::{TierLosses, TierRoom};
use crate::store::{MoveId, Part, Violation, STAGING};

/// The tier, its keys in use by copies, and what each running request did with its keys.
#[derive(Debug)]
pub struct OffloadBelow {
    tier: OffloadTier,
    capacity_blocks: u64,
    in_use: HeldKeys,
    /// By request and place in its prompt.
    used: Vec<Vec<Option<(u64, Access)>>>,
    stored: u64,
    evicted: u64,
}

impl OffloadBelow {
    /// An empty tier below the pool of a trace of so many requests.
    pub fn new(tier: OffloadTier, capacity_blocks: u64, requests: u32) -> Self {
        Self {
            tier,
            capacity_blocks,
            in_use: HeldKeys::default(),
            used: vec![Vec::new(); requests as usize],
            stored: 0,
            evicted: 0,
        }
    }

    /// Notes what a request did with the key at a place of its prompt.
    fn use_key(&mut self, request: u32, place: u32, used: (u64, Access)) {
        let all = &mut self.used[request as usize];
        if all.len() <= place as usize {
            all.resize(place as usize + 1, None);
        }
        all[place as usize] = Some(used);
    }

    /// Tells the policy what a request has used so far.
    fn access(&mut self, request: u32) {
        let used = self.used[request as usize].iter().flatten();
        let keys: Vec<u64> = used.map(|&(key, _)| key).collect();
        self.tier.access(&keys);
    }
}

impl Below for OffloadBelow {
    fn tiers(&self) -> usize {
        2
    }

    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32 {
        let mut behind = in_pool..limit.max(in_pool);
        behind
            .find(|&block| !self.tier.contains(prompt.key(block)))
            .unwrap_or(limit.max(in_pool))
    }

    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool {
        self.tier.contains(prompt.key(block))
    }

    fn parts(
        &self,
        pool: &CopiedPool,
        prompt: Prompt<'_>,
        (start, limit): (u32, u32),
    ) -> Vec<Part> {
        let mut parts = InParts::default();
        for block in start..limit {
            let key = prompt.key(block);
            if !self.tier.contains(key) {
                break;
            }
            parts.add(block, (STAGING, pool.written_by(key)));
        }
        parts.done()
    }

    fn protect(&mut self, mut keys: Vec<u64>) -> Vec<u64> {
        keys.retain(|&key| self.tier.contains(key));
        self.in_use.hold(&keys);
        keys
    }

    fn hold(&mut self, keys: &[u64]) {
        self.in_use.hold(keys);
    }

    fn let_be(&mut self, keys: &[u64]) {
        self.in_use.let_be(keys);
    }

    fn admitted(&mut self, _: Prompt<'_>) -> u32 {
        0
    }

    fn load(
        &mut self,
        _: Site<'_>,
        prompt: Prompt<'_>,
        (start, end): (u32, u32),
        after: &[MoveId],
    ) -> Vec<MoveId> {
        for block in start..end {
            self.use_key(prompt.request, block, (prompt.key(block), Access::Reused));
        }
        self.access(prompt.request);
        after.to_vec()
    }

    fn offers_after(&self, _: u32, to: u32) -> u32 {
        to
    }

    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, (start, end): (u32, u32)) -> bool {
        let keys: Vec<u64> = prompt.keys((start, end)).collect();
        let in_use = &self.in_use;
        let offered = self
            .tier
            .offer_beside(keys.clone(), &|key| in_use.contains(key));
        for (place, &access) in (start..).zip(&offered.accesses) {
            let known = self.used[prompt.request as usize].get(place as usize);
            if matches!(known, None | Some(None | Some((_, Access::Refused)))) {
                self.use_key(prompt.request, place, access);
            }
        }
        self.access(prompt.request);
        if offered.is_refused {
            return false;
        }
        let evicted = offered.evicted.len() as u64;
        self.stored += offered.stored;
        self.evicted += evicted;
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        let blocks = site.pool.blocks(prompt.request, (start, end));
        let stored = |&(_, &(_, access)): &(u32, &(u64, Access))| access == Access::Stored;
        let sent = blocks.into_iter().zip(&offered.accesses).filter(stored);
        let (blocks, new): (Vec<u32>, Vec<u64>) =
            sent.map(|(block, &(key, _))| (block, key)).unzip();
        if !new.is_empty() {
            self.in_use.hold(&new);
            site.pool.write(new.clone(), blocks, &new);
        }
        true
    }

    fn ended(&mut self, copy: &Copy, _: MoveId) {
        self.in_use.let_be(&copy.keys);
    }

    fn finish(&mut self, request: u32) {
        let used = std::mem::take(&mut self.used[request as usize]);
        let used: Vec<(u64, Access)> = used.into_iter().flatten().collect();
        self.tier.finish(&used);
    }

    fn room(&self, pool: &CopiedPool, _: usize) -> TierRoom {
        let (there, writing) = (self.tier.resident(), pool.writing_blocks());
        TierRoom {
            free: self.capacity_blocks - there,
            active: 0,
            cached: there - writing,
            in_flight: writing,
            evictable: there - self.in_use.len() as u64,
        }
    }

    fn losses(&self, _: usize) -> TierLosses {
        TierLosses {
            evicted: self.evicted,
            ..TierLosses::default()
        }
    }

    fn duplicates(&self, pool: &CopiedPool, _: usize) -> u64 {
        self.tier.keys().filter(|&key| pool.has(key)).count() as u64
    }

    fn check(&self, _: &CopiedPool) -> Result<(), Violation> {
        let there = self.tier.resident();
        if there != self.stored - self.evicted || there > self.capacity_blocks {
            let room = self.capacity_blocks;
            return Err(format!("I2: {there} of {room} blocks in the tier"));
        }
        if !self.in_use.all(|key| self.tier.contains(key)) {
            return Err("I3: a block of the tier was evicted while it was copied".into());
        }
        Ok(())
    }
}

//! vLLM's CPU offloading tier (0.33.0, `kv_offload/cpu`) below its pool, in a timed run.

use super::below::{Below, Prompt, Site};
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::used_tier::UsedTier;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{add_part, MoveId, Part, Violation, STAGING};

/// Tier below a pool of one group.
#[derive(Debug)]
pub struct OffloadBelow(pub UsedTier);

/// Returns slots and keys of a range of blocks in the only group.
fn placed(prompt: Prompt<'_>, (start, end): (u32, u32)) -> Vec<(u32, u64)> {
    (start..end)
        .map(|block| (block, prompt.key(block)))
        .collect()
}

impl Below for OffloadBelow {
    fn tiers(&self) -> usize {
        2
    }

    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32 {
        let mut behind = in_pool..limit.max(in_pool);
        behind
            .find(|&block| !self.0.contains(prompt.key(block)))
            .unwrap_or(limit.max(in_pool))
    }

    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool {
        self.0.contains(prompt.key(block))
    }

    fn parts(
        &self,
        pool: &CopiedPool,
        prompt: Prompt<'_>,
        (start, limit): (u32, u32),
    ) -> Vec<Part> {
        let mut parts = Vec::new();
        for block in start..limit {
            let key = prompt.key(block);
            if !self.0.contains(key) {
                break;
            }
            let part = (STAGING, pool.copies.written_by(key));
            add_part(&mut parts, part, (block, block + 1));
        }
        parts
    }

    fn protect(&mut self, mut keys: Vec<u64>) -> Vec<u64> {
        keys.retain(|&key| self.0.contains(key));
        self.0.in_use.hold(&keys);
        keys
    }

    fn in_use(&mut self) -> &mut HeldKeys {
        &mut self.0.in_use
    }

    fn admitted(&mut self, _: Prompt<'_>, _: u32) -> u32 {
        0
    }

    fn load(
        &mut self,
        _: Site<'_>,
        prompt: Prompt<'_>,
        blocks: (u32, u32),
        after: &[MoveId],
    ) -> Vec<MoveId> {
        self.0
            .load(prompt.request, placed(prompt, blocks).into_iter());
        after.to_vec()
    }

    fn offers_after(&self, _: u32, to: u32) -> u32 {
        to
    }

    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, blocks: (u32, u32)) -> bool {
        let offered = placed(prompt, blocks);
        let Some(stored) = self.0.offer(prompt.request, &offered) else {
            return false;
        };
        site.records
            .evicted_from(STAGING, stored.evicted, site.now_ns);
        let held = site.pool.blocks(prompt.request, blocks);
        let sent = held.into_iter().zip(&offered).zip(stored.is_new);
        let sent = sent.filter(|&(_, is_new)| is_new);
        let (held, new): (Vec<u32>, Vec<u64>) =
            sent.map(|((block, &(_, key)), _)| (block, key)).unzip();
        if !new.is_empty() {
            self.0.in_use.hold(&new);
            site.pool.copies.write(new.clone(), held, &new);
        }
        true
    }

    fn ended(&mut self, copy: &Copy, _: MoveId) {
        self.0.in_use.release_keys(&copy.keys);
    }

    fn finish(&mut self, prompt: Prompt<'_>) {
        self.0.finish(prompt.request);
    }

    fn occupancy(&self, pool: &CopiedPool, _: usize) -> TierOccupancy {
        self.0.occupancy(pool.copies.writing_blocks())
    }

    fn eviction_counts(&self, _: usize) -> EvictionCounts {
        EvictionCounts::of(self.0.evicted())
    }

    fn duplicates(&self, pool: &CopiedPool, _: usize) -> u64 {
        self.0.count(|key| pool.has(key))
    }

    fn check(&self, _: &CopiedPool) -> Result<(), Violation> {
        self.0.check()
    }
}

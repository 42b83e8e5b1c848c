//! vLLM's CPU offloading tier (0.33.0, `kv_offload/cpu`) below its pool, in a timed run.

use std::ops::Range;

use super::below::{Below, Prompt, Site};
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::tier_chunks::TierChunks;
use super::used_tier::{SlotKey, UsedTier};
use crate::ids::BlockRange;
use crate::store::connector::LookUp;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{add_part, MoveId, Part, Violation, NO_MOVE, STAGING};

/// Tier below a pool of one group; it stores chunks of one or more blocks.
#[derive(Debug)]
pub struct OffloadBelow {
    tier: UsedTier,
    chunks: TierChunks,
}

/// Returns slots and keys of a range of chunks in the only group.
fn placed(prompt: Prompt<'_>, chunks: Range<u32>) -> Vec<SlotKey> {
    let keys = chunks.clone().zip(prompt.chunk_keys(chunks));
    keys.map(|(slot, key)| SlotKey { slot, key }).collect()
}

impl OffloadBelow {
    /// A tier of as many chunks as it may have.
    pub fn new(tier: UsedTier, chunks: TierChunks) -> Self {
        Self { tier, chunks }
    }
}

impl Below for OffloadBelow {
    fn tiers(&self) -> usize {
        2
    }

    fn chunk_blocks(&self) -> u32 {
        self.chunks.blocks
    }

    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32 {
        prompt.reached(in_pool, limit, |chunk| self.tier.contains(chunk))
    }

    /// As the connector looks up whole chunks (`_lookup_complete_chunks`): up to the first one that is absent.
    fn look_up(
        &self,
        pool: &CopiedPool,
        prompt: Prompt<'_>,
        in_pool: u32,
        is_loading: &dyn Fn(u64) -> bool,
    ) -> LookUp {
        let (per, whole) = (self.chunks.blocks, prompt.whole_chunks());
        if whole * per < in_pool + per {
            return LookUp::Nothing;
        }
        let writes = pool.copies.writing_blocks() > 0;
        let (mut end, mut is_written, mut is_read) = (in_pool / per, false, false);
        while end < whole {
            let key = prompt.chunk_key(end);
            if !self.tier.contains(key) {
                break;
            }
            is_written |= writes && pool.copies.written_by(key) != NO_MOVE;
            is_read = is_read || is_loading(key);
            end += 1;
        }
        let end = end * per;
        if is_written {
            return LookUp::Later;
        }
        if end < in_pool + per {
            return LookUp::Nothing;
        }
        if is_read {
            return LookUp::Later;
        }
        LookUp::Found(end)
    }

    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool {
        self.found(prompt, block, block + 1) > block
    }

    fn parts(&self, pool: &CopiedPool, prompt: Prompt<'_>, blocks: BlockRange) -> Vec<Part> {
        let mut parts = Vec::new();
        let end = self.found(prompt, blocks.start, blocks.end);
        let found = BlockRange::new(blocks.start, end);
        for (block, chunk) in (found.start..end).zip(prompt.chunk_keys_of_blocks(found)) {
            let by = pool.copies.written_by(chunk);
            let block = BlockRange::new(block, block + 1);
            add_part(&mut parts, Part::of(STAGING, by, block));
        }
        parts
    }

    fn protect(&mut self, mut keys: Vec<u64>) -> Vec<u64> {
        keys.retain(|&key| self.tier.contains(key));
        self.tier.in_use.hold(&keys);
        keys
    }

    fn in_use(&mut self) -> &mut HeldKeys {
        &mut self.tier.in_use
    }

    fn admitted(&mut self, _: Prompt<'_>, _: u32) -> u32 {
        0
    }

    fn load(
        &mut self,
        _: Site<'_>,
        prompt: Prompt<'_>,
        blocks: BlockRange,
        after: &[MoveId],
    ) -> Vec<MoveId> {
        let per = self.chunks.blocks;
        let chunks = placed(prompt, blocks.start / per..blocks.end.div_ceil(per));
        self.tier.load(prompt.request, chunks.into_iter());
        after.to_vec()
    }

    fn offers_after(&self, _: u32, to: u32) -> u32 {
        to.next_multiple_of(self.chunks.blocks)
    }

    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, blocks: BlockRange) -> bool {
        let per = self.chunks.blocks;
        let chunks = blocks.start / per..blocks.end / per;
        let offered = placed(prompt, chunks.clone());
        let copies = &site.pool.copies;
        let is_ready = |chunk| copies.written_by(chunk) == NO_MOVE;
        let stored = self.tier.offer(prompt.request, &offered, &is_ready);
        let Some(stored) = stored else {
            return false;
        };
        let evicted = stored.evicted.len() as u64 * u64::from(per);
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        self.chunks.forget(&stored.evicted, |_| false);
        self.chunks.stored(prompt, chunks);
        let sent = offered.iter().zip(stored.is_new);
        let sent = sent.filter(|&(_, is_new)| is_new);
        let (at, new): (Vec<u32>, Vec<u64>) =
            sent.map(|(chunk, _)| (chunk.slot, chunk.key)).unzip();
        if !new.is_empty() {
            let blocks = |chunk: u32| {
                let blocks = BlockRange::new(chunk * per, (chunk + 1) * per);
                site.pool.blocks(prompt.request, blocks)
            };
            let held = at.into_iter().flat_map(blocks).collect();
            let sent = self.chunks.each_block(&new);
            self.tier.in_use.hold(&sent);
            site.pool.copies.write(sent, held, &new);
        }
        true
    }

    fn ended(&mut self, copy: &Copy, _: MoveId) {
        self.tier.in_use.release_keys(&copy.keys);
    }

    fn finish(&mut self, prompt: Prompt<'_>) {
        self.tier.finish(prompt.request);
    }

    fn occupancy(&self, pool: &CopiedPool, _: usize) -> TierOccupancy {
        let own = self.tier.counts(pool.copies.writing_blocks());
        self.chunks.occupancy(STAGING, own)
    }

    fn eviction_counts(&self, _: usize) -> EvictionCounts {
        EvictionCounts::of(self.tier.evicted() * u64::from(self.chunks.blocks))
    }

    fn duplicates(&self, pool: &CopiedPool, _: usize) -> u64 {
        let keys = self.tier.keys();
        keys.map(|chunk| self.chunks.in_pool(|key| pool.has(key), chunk))
            .sum()
    }

    fn check(&self, _: &CopiedPool) -> Result<(), Violation> {
        self.tier.check()
    }
}

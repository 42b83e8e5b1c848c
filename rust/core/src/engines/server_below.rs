//! The memory (L1) of LMCache's server (0.5.7, `v1/distributed`) below vLLM's pool, in a timed run; a chunk is one or
//! more of the pool's blocks.
//!
//! A look-up starts at the first chunk that the pool does not have whole. Chunks that a step has computed behind it are
//! written in one call, or not at all: nothing is evicted for them. Chunks that are being copied stay in memory; those
//! that are still being written are not found.

use super::below::{Below, Prompt, Site};
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::l1_order::L1Policy;
use super::offload_tier::KeySet;
use super::server_level::ServerLevel;
use super::tier_chunks::TierChunks;
use crate::convert::fit;
use crate::records::Records;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{add_part, MoveId, Part, Violation, GPU, NO_MOVE, STAGING};

/// The memory, and its chunks that copies use.
#[derive(Debug)]
pub struct ServerBelow {
    l1: ServerLevel,
    chunks: TierChunks,
    in_use: HeldKeys,
    /// Chunks that are being written.
    writing: KeySet,
    /// Blocks evicted, and computed blocks that did not fit.
    counts: EvictionCounts,
}

impl ServerBelow {
    /// An empty memory of chunks below the pool.
    pub fn new(policy: L1Policy, chunks: TierChunks) -> Self {
        Self {
            l1: ServerLevel::new(policy, fit::<usize>(chunks.capacities().0)),
            chunks,
            in_use: HeldKeys::default(),
            writing: KeySet::default(),
            counts: EvictionCounts::default(),
        }
    }

    /// Returns the chunk at which the look-up starts, and the first one that is not found.
    fn look_up(&self, prompt: Prompt<'_>, in_pool: u32) -> (u32, u32) {
        let start = in_pool / self.chunks.blocks;
        let is_here = |key| self.l1.order.contains(key) && !self.writing.contains(&key);
        let whole = prompt.whole_chunks();
        let missing = (start..whole).find(|&chunk| !is_here(prompt.chunk_key(chunk)));
        (start, missing.unwrap_or(whole).max(start))
    }

    fn blocks(&self, chunks: usize) -> u64 {
        chunks as u64 * u64::from(self.chunks.blocks)
    }
}

impl Below for ServerBelow {
    fn tiers(&self) -> usize {
        STAGING + 1
    }

    fn chunk_blocks(&self) -> u32 {
        self.chunks.blocks
    }

    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32 {
        let (_, found) = self.look_up(prompt, in_pool);
        in_pool.max((found * self.chunks.blocks).min(limit))
    }

    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool {
        self.look_up(prompt, block).1 * self.chunks.blocks > block
    }

    fn parts(&self, _: &CopiedPool, prompt: Prompt<'_>, (start, limit): (u32, u32)) -> Vec<Part> {
        let (_, found) = self.look_up(prompt, start);
        let mut parts = Vec::new();
        let end = limit.min(found * self.chunks.blocks);
        if start < end {
            add_part(&mut parts, (STAGING, NO_MOVE), (start, end));
        }
        parts
    }

    /// Protects nothing, since look-up and loads of a request happen at one moment.
    fn protect(&mut self, _: Vec<u64>) -> Vec<u64> {
        Vec::new()
    }

    fn in_use(&mut self) -> &mut HeldKeys {
        &mut self.in_use
    }

    /// Renews the chunks that the pool has, then those found behind them; later ones are to be offered.
    fn admitted(&mut self, prompt: Prompt<'_>, in_pool: u32) -> u32 {
        let (start, found) = self.look_up(prompt, in_pool);
        self.l1.order.touch(&prompt.chunk_keys((0, start)));
        self.l1.order.touch(&prompt.chunk_keys((start, found)));
        found * self.chunks.blocks
    }

    fn load(&mut self, _: Site<'_>, _: Prompt<'_>, _: (u32, u32), after: &[MoveId]) -> Vec<MoveId> {
        after.to_vec()
    }

    fn offers_after(&self, before: u32, _: u32) -> u32 {
        before
    }

    /// Writes the absent chunks of a step together, or none: they are not offered again.
    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, (start, end): (u32, u32)) -> bool {
        let per = self.chunks.blocks;
        let order = &mut self.l1.order;
        let absent = |&chunk: &u32| !order.contains(prompt.chunk_key(chunk));
        let new: Vec<u32> = (start / per..end / per).filter(absent).collect();
        if new.is_empty() {
            return true;
        }
        if order.len() + new.len() > self.l1.capacity {
            self.counts.overflowed += self.blocks(new.len());
            return true;
        }
        let keys: Vec<u64> = new.iter().map(|&chunk| prompt.chunk_key(chunk)).collect();
        order.write(&keys);
        self.writing.extend(&keys);
        let sent = self.chunks.each_block(&keys);
        let mut blocks = Vec::with_capacity(sent.len());
        for chunk in new {
            self.chunks.stored(prompt, (chunk, chunk + 1));
            let of_chunk = (chunk * per, (chunk + 1) * per);
            blocks.extend(site.pool.blocks(prompt.request, of_chunk));
        }
        self.in_use.hold(&sent);
        site.pool.copies.write(sent, blocks, &keys);
        true
    }

    /// Lets a copy's chunks go; those that it has written are found from now on.
    fn ended(&mut self, copy: &Copy, _: MoveId) {
        self.in_use.release_keys(&copy.keys);
        if copy.to != GPU {
            let mut keys = copy.keys.clone();
            keys.dedup();
            self.l1.order.written(&keys);
            self.writing.retain(|key| !keys.contains(key));
        }
    }

    /// Renews all chunks of the prompt.
    fn finish(&mut self, prompt: Prompt<'_>) {
        let keys = prompt.chunk_keys((0, prompt.whole_chunks()));
        self.l1.order.touch(&keys);
    }

    fn run_loops(&mut self, records: &mut Records, now_ns: u64) {
        let passes = self.l1.run_until(now_ns, |key| self.in_use.contains(key));
        for (at_ns, dropped) in passes {
            let blocks = self.blocks(dropped.len());
            self.counts.evicted += blocks;
            records.evicted_from(STAGING, blocks, at_ns);
            self.chunks.forget(&dropped, |_| false);
        }
    }

    fn occupancy(&self, _: &CopiedPool, _: usize) -> TierOccupancy {
        let (there, writing) = (self.l1.order.len(), self.writing.len());
        let in_use = self.in_use.len();
        TierOccupancy {
            free: self.chunks.capacity_blocks(STAGING) - self.blocks(there),
            held: self.blocks(in_use - writing),
            cached: self.blocks(there - in_use),
            in_flight: self.blocks(writing),
            private: 0,
        }
    }

    fn eviction_counts(&self, _: usize) -> EvictionCounts {
        self.counts
    }

    fn duplicates(&self, pool: &CopiedPool, _: usize) -> u64 {
        let keys = self.l1.order.keys().into_iter();
        keys.map(|key| self.chunks.in_pool(pool, key)).sum()
    }

    fn check(&self, _: &CopiedPool) -> Result<(), Violation> {
        let (there, spare) = (self.l1.order.len(), self.l1.capacity);
        if there > spare {
            return Err(format!("I2: {there} of {spare} chunks in memory"));
        }
        if !self.in_use.all(|key| self.l1.order.contains(key)) {
            return Err("I3: a chunk was evicted while it was copied".into());
        }
        Ok(())
    }
}

//! LMCache's CPU and disk tiers (0.5.6, `v1/storage_backend`) below vLLM's pool, in a timed run; a chunk is one or
//! more of the pool's blocks, and only whole chunks are stored (`save_unfull_chunk: false`).
//!
//! A look-up starts at the prompt's first chunk, on the CPU, then on the disk. Chunks loaded from the disk pass
//! through the CPU and stay there. Chunks that a step has computed behind the look-up are stored on the CPU, and
//! from there on the disk. Copies to and from the GPU move blocks, copies between the tiers move whole chunks.

use std::ops::Range;

use super::below::{Below, InSteps, Prompt, Site};
use super::chunk_order::ChunkOrder;
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::key_index::KeyMap;
use super::lmcache_tiers::{Tier, Tiers};
use super::tier_chunks::TierChunks;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::records::Records;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{add_part, MoveId, Part, Violation, NO_MOVE, STAGING};
use crate::tiers::Route;

/// Index of the disk tier, below the CPU.
const DISK: usize = STAGING + 1;

/// The tiers, and the writes to the disk in flight.
#[derive(Debug)]
pub struct LmcacheBelow {
    tiers: Tiers,
    chunks: TierChunks,
    /// Chunks that are being written to the disk, with the move.
    to_disk: KeyMap<u64, MoveId>,
    /// For each running request, the chunks of its prompt that its look-up found on the CPU.
    on_cpu: Vec<u32>,
}

impl LmcacheBelow {
    /// Empty tiers of chunks below the pool, for a trace of `requests` requests; a disk with 0 blocks is no disk.
    pub fn new(orders: [ChunkOrder; 2], chunks: TierChunks, requests: u32) -> Self {
        Self {
            tiers: Tiers::new(orders, chunks.capacities()),
            chunks,
            to_disk: KeyMap::default(),
            on_cpu: vec![0; requests as usize],
        }
    }

    /// Returns the leading chunks found on the CPU, and those found including the disk, as far as the CPU can
    /// hold them.
    fn look_up(&self, prompt: Prompt<'_>) -> (u32, u32) {
        let whole = prompt.whole_chunks();
        let (on_cpu, found) = self.tiers.look_up(whole, |chunk| prompt.chunk_key(chunk));
        if found == on_cpu {
            return (on_cpu, on_cpu);
        }
        let cpu = &self.tiers.cpu;
        // The engine would wait for more of its CPU memory.
        let both = cpu.in_use.among(prompt.chunk_keys(0..on_cpu).into_iter());
        let kept = u64::from(on_cpu) + (cpu.in_use.len() - both) as u64;
        let spare = cpu.capacity - kept;
        (
            on_cpu,
            on_cpu + fit::<u32>(spare.min(u64::from(found - on_cpu))),
        )
    }

    /// Records evictions from a tier.
    fn lost(&mut self, records: &mut Records, now_ns: u64, tier: usize, keys: &[u64]) {
        let blocks = keys.len() as u64 * u64::from(self.chunks.blocks);
        records.evicted_from(tier, blocks, now_ns);
        let Tiers { cpu, disk } = &self.tiers;
        let is_here = |key| cpu.chunks.contains(key) || disk.chunks.contains(key);
        self.chunks.forget(keys, is_here);
    }

    /// Stores chunks on the CPU as far as there is capacity; returns those that get memory, and the new ones of them.
    fn store(
        &mut self,
        site: &mut Site<'_>,
        prompt: Prompt<'_>,
        chunks: Range<u32>,
    ) -> (Vec<u64>, Vec<u64>) {
        let mut keys = prompt.chunk_keys(chunks.clone());
        let (taken, evicted) = self.tiers.take(keys.len(), &HeldKeys::default());
        keys.truncate(taken);
        let new = self.tiers.put(&keys);
        self.lost(site.records, site.now_ns, STAGING, &evicted);
        let end = chunks.start + fit::<u32>(taken);
        self.chunks.stored(prompt, chunks.start..end);
        (keys, new)
    }

    fn tier(&self, tier: usize) -> &Tier {
        if tier == STAGING {
            &self.tiers.cpu
        } else {
            &self.tiers.disk
        }
    }
}

impl InSteps for LmcacheBelow {
    fn pin(&mut self, prompt: Prompt<'_>) -> Vec<u64> {
        let (on_cpu, _) = self.look_up(prompt);
        let found = prompt.chunk_keys(0..on_cpu);
        self.tiers.hit(&found, on_cpu as usize);
        self.tiers.cpu.in_use.hold(&found);
        found
    }

    fn save(&mut self, mut site: Site<'_>, prompt: Prompt<'_>, chunks: Range<u32>) -> Vec<u64> {
        let (keys, _) = self.store(&mut site, prompt, chunks);
        self.chunks.each_block(&keys)
    }
}

impl Below for LmcacheBelow {
    fn in_steps(&mut self) -> Option<&mut dyn InSteps> {
        Some(self)
    }

    fn tiers(&self) -> usize {
        if self.tiers.disk.capacity == 0 {
            return DISK;
        }
        DISK + 1
    }

    fn chunk_blocks(&self) -> u32 {
        self.chunks.blocks
    }

    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32 {
        in_pool.max((self.look_up(prompt).1 * self.chunks.blocks).min(limit))
    }

    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool {
        self.look_up(prompt).1 * self.chunks.blocks > block
    }

    fn parts(&self, pool: &CopiedPool, prompt: Prompt<'_>, blocks: BlockRange) -> Vec<Part> {
        let (on_cpu, below) = self.look_up(prompt);
        let mut parts = Vec::new();
        for block in blocks.start..blocks.end.min(below * self.chunks.blocks) {
            let chunk = block / self.chunks.blocks;
            let key = prompt.chunk_key(chunk);
            let (tier, by) = if chunk < on_cpu {
                (STAGING, pool.copies.written_by(key))
            } else {
                let by = self.to_disk.get(&key);
                (DISK, by.copied().unwrap_or(NO_MOVE))
            };
            let block = BlockRange::new(block, block + 1);
            add_part(&mut parts, Part::of(tier, by, block));
        }
        parts
    }

    fn in_use(&mut self) -> &mut HeldKeys {
        &mut self.tiers.cpu.in_use
    }

    /// Counts the hits of the look-up, the last chunk first; chunks behind the hit are to be offered.
    fn admitted(&mut self, prompt: Prompt<'_>, _: u32) -> u32 {
        let (on_cpu, below) = self.look_up(prompt);
        self.on_cpu[prompt.request as usize] = on_cpu;
        let found = prompt.chunk_keys(0..below);
        self.tiers.hit(&found, on_cpu as usize);
        below * self.chunks.blocks
    }

    fn load(
        &mut self,
        site: Site<'_>,
        prompt: Prompt<'_>,
        blocks: BlockRange,
        after: &[MoveId],
    ) -> Vec<MoveId> {
        let on_cpu = self.on_cpu[prompt.request as usize];
        let mut after = after.to_vec();
        let first = blocks.start / self.chunks.blocks;
        if first < on_cpu {
            return after;
        }
        let keys = prompt.chunk_keys(first..blocks.end.div_ceil(self.chunks.blocks));
        let pinned = prompt.chunk_keys(0..on_cpu);
        let (new, evicted) = self.tiers.load(&keys, &pinned);
        self.lost(site.records, site.now_ns, STAGING, &evicted);
        let keys = self.chunks.each_block(&keys);
        self.tiers.disk.in_use.hold(&keys);
        self.tiers.cpu.in_use.hold(&keys);
        let read = site.pool.copies.below(keys, Route::up_from(DISK), &after);
        site.pool.copies.is_written(&new, read);
        after.push(read);
        after
    }

    /// Stores blocks as far as there is capacity; other blocks are not stored.
    fn offer(&mut self, mut site: Site<'_>, prompt: Prompt<'_>, blocks: BlockRange) -> bool {
        let (per, start) = (self.chunks.blocks, blocks.start);
        let (keys, new) = self.store(&mut site, prompt, start / per..blocks.end / per);
        if keys.is_empty() {
            return true;
        }
        let end = start + fit::<u32>(keys.len()) * per;
        let blocks = site
            .pool
            .blocks(prompt.request, BlockRange::new(start, end));
        let sent = self.chunks.each_block(&keys);
        self.tiers.cpu.in_use.hold(&sent);
        let written = site.pool.copies.write(sent, blocks, &new);
        let (to_disk, lost) = self.tiers.store_on_disk(&keys);
        self.lost(site.records, site.now_ns, DISK, &lost);
        if !to_disk.is_empty() {
            let sent = self.chunks.each_block(&to_disk);
            self.tiers.disk.in_use.hold(&sent);
            self.tiers.cpu.in_use.hold(&sent);
            let by = site
                .pool
                .copies
                .below(sent, Route::new(STAGING, DISK), &[written]);
            self.to_disk
                .extend(to_disk.into_iter().map(|key| (key, by)));
        }
        true
    }

    fn ended(&mut self, copy: &Copy, by: MoveId) {
        self.tiers.cpu.in_use.release_keys(&copy.keys);
        if DISK == copy.from || DISK == copy.to {
            self.tiers.disk.in_use.release_keys(&copy.keys);
        }
        for key in &copy.keys {
            if self.to_disk.get(key) == Some(&by) {
                self.to_disk.remove(key);
            }
        }
    }

    fn finish(&mut self, _: Prompt<'_>) {}

    fn occupancy(&self, pool: &CopiedPool, tier: usize) -> TierOccupancy {
        let own = self.tier(tier);
        let there = own.chunks.len();
        let (writing, in_use) = if tier == STAGING {
            (pool.copies.writing_blocks(), own.in_use.len() as u64)
        } else {
            let here = |key: &&u64| own.chunks.contains(**key);
            let writing = self.to_disk.keys().filter(here).count() as u64;
            (writing, own.in_use.count(|key| own.chunks.contains(key)))
        };
        self.chunks.occupancy(tier, [there, in_use, writing])
    }

    fn eviction_counts(&self, tier: usize) -> EvictionCounts {
        EvictionCounts::of(self.tier(tier).evictions * u64::from(self.chunks.blocks))
    }

    fn duplicates(&self, pool: &CopiedPool, tier: usize) -> u64 {
        let keys = self.tier(tier).chunks.keys().into_iter();
        let in_cpu = |key| tier > STAGING && self.tiers.cpu.chunks.contains(key);
        let counted = keys.map(|key| match in_cpu(key) {
            true => u64::from(self.chunks.blocks),
            false => self.chunks.in_pool(|key| pool.has(key), key),
        });
        counted.sum()
    }

    fn check(&self, pool: &CopiedPool) -> Result<(), Violation> {
        for tier in [&self.tiers.cpu, &self.tiers.disk] {
            if tier.chunks.len() > tier.capacity {
                let (there, spare) = (tier.chunks.len(), tier.capacity);
                return Err(format!("I2: {there} of {spare} blocks in a tier"));
            }
        }
        if !pool
            .copies
            .all_written(|key| self.tiers.cpu.chunks.contains(key))
        {
            return Err("I3: a block was evicted from the CPU while it was written".into());
        }
        Ok(())
    }
}

//! LMCache's CPU and disk tiers (0.5.6, `v1/storage_backend`) below vLLM's pool, in a timed run; a chunk is a
//! block.
//!
//! A look-up starts at the prompt's first chunk, on the CPU, then on the disk. Chunks loaded from the disk pass
//! through the CPU and stay there. Chunks that a step has computed behind the look-up are stored on the CPU, and
//! from there on the disk.

use super::below::{Below, Prompt, Site};
use super::chunk_order::ChunkOrder;
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::key_index::KeyMap;
use super::lmcache_tiers::{Tier, Tiers};
use crate::convert::fit;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{add_part, MoveId, Part, Violation, NO_MOVE, STAGING};

/// Index of the disk tier, below the CPU.
const DISK: usize = STAGING + 1;

/// The tiers, and the writes to the disk in flight.
#[derive(Debug)]
pub struct LmcacheBelow {
    tiers: Tiers,
    /// Chunks that are being written to the disk, with the move.
    to_disk: KeyMap<u64, MoveId>,
    /// For each running request, the chunks of its prompt that its look-up found on the CPU.
    on_cpu: Vec<u32>,
}

impl LmcacheBelow {
    /// Empty tiers below the pool, for a trace of `requests` requests; a disk with 0 chunks is no disk.
    pub fn new(orders: [ChunkOrder; 2], capacity_chunks: (u64, u64), requests: u32) -> Self {
        Self {
            tiers: Tiers::new(orders, capacity_chunks),
            to_disk: KeyMap::default(),
            on_cpu: vec![0; requests as usize],
        }
    }

    /// Returns the leading chunks found on the CPU, and those found including the disk, as far as the CPU can
    /// hold them.
    fn look_up(&self, prompt: Prompt<'_>) -> (u32, u32) {
        let (on_cpu, found) = self
            .tiers
            .look_up(prompt.whole_blocks, |block| prompt.key(block));
        if found == on_cpu {
            return (on_cpu, on_cpu);
        }
        let cpu = &self.tiers.cpu;
        // The engine would wait for more of its CPU memory.
        let both = cpu.in_use.among(prompt.keys((0, on_cpu)));
        let kept = u64::from(on_cpu) + (cpu.in_use.len() - both) as u64;
        let spare = cpu.capacity - kept;
        (
            on_cpu,
            on_cpu + fit::<u32>(spare.min(u64::from(found - on_cpu))),
        )
    }

    fn tier(&self, tier: usize) -> &Tier {
        if tier == STAGING {
            &self.tiers.cpu
        } else {
            &self.tiers.disk
        }
    }
}

impl Below for LmcacheBelow {
    fn tiers(&self) -> usize {
        if self.tiers.disk.capacity == 0 {
            return DISK;
        }
        DISK + 1
    }

    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32 {
        in_pool.max(self.look_up(prompt).1.min(limit))
    }

    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool {
        self.look_up(prompt).1 > block
    }

    fn parts(
        &self,
        pool: &CopiedPool,
        prompt: Prompt<'_>,
        (start, limit): (u32, u32),
    ) -> Vec<Part> {
        let (on_cpu, below) = self.look_up(prompt);
        let mut parts = Vec::new();
        for block in start..limit.min(below) {
            let key = prompt.key(block);
            let part = if block < on_cpu {
                (STAGING, pool.copies.written_by(key))
            } else {
                let by = self.to_disk.get(&key);
                (DISK, by.copied().unwrap_or(NO_MOVE))
            };
            add_part(&mut parts, part, (block, block + 1));
        }
        parts
    }

    /// Protects nothing, since look-up and loads of a request happen at one moment.
    fn protect(&mut self, _: Vec<u64>) -> Vec<u64> {
        Vec::new()
    }

    fn in_use(&mut self) -> &mut HeldKeys {
        &mut self.tiers.cpu.in_use
    }

    /// Counts the hits of the look-up, the last chunk first; chunks behind the hit are to be offered.
    fn admitted(&mut self, prompt: Prompt<'_>) -> u32 {
        let (on_cpu, below) = self.look_up(prompt);
        self.on_cpu[prompt.request as usize] = on_cpu;
        let found: Vec<u64> = prompt.keys((0, below)).collect();
        self.tiers.hit(&found, on_cpu as usize);
        below
    }

    fn load(
        &mut self,
        site: Site<'_>,
        prompt: Prompt<'_>,
        blocks: (u32, u32),
        after: &[MoveId],
    ) -> Vec<MoveId> {
        let on_cpu = self.on_cpu[prompt.request as usize];
        let mut after = after.to_vec();
        if blocks.0 < on_cpu {
            return after;
        }
        let keys: Vec<u64> = prompt.keys(blocks).collect();
        let pinned: Vec<u64> = prompt.keys((0, on_cpu)).collect();
        let (new, evicted) = self.tiers.load(&keys, &pinned);
        let evicted = evicted.len() as u64;
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        self.tiers.disk.in_use.hold(&keys);
        self.tiers.cpu.in_use.hold(&keys);
        let read = site.pool.copies.below(keys, (DISK, STAGING), &after);
        site.pool.copies.is_written(&new, read);
        after.push(read);
        after
    }

    fn offers_after(&self, before: u32, _: u32) -> u32 {
        before
    }

    /// Stores blocks as far as there is capacity; other blocks are not stored.
    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, (start, end): (u32, u32)) -> bool {
        let mut keys: Vec<u64> = prompt.keys((start, end)).collect();
        let (taken, evicted) = self.tiers.take(keys.len(), &HeldKeys::default());
        keys.truncate(taken);
        let new = self.tiers.put(&keys);
        site.records
            .evicted_from(STAGING, evicted.len() as u64, site.now_ns);
        if keys.is_empty() {
            return true;
        }
        let blocks = site
            .pool
            .blocks(prompt.request, (start, start + fit::<u32>(taken)));
        self.tiers.cpu.in_use.hold(&keys);
        let written = site.pool.copies.write(keys.clone(), blocks, &new);
        let (to_disk, lost) = self.tiers.store_on_disk(&keys);
        site.records
            .evicted_from(DISK, lost.len() as u64, site.now_ns);
        if !to_disk.is_empty() {
            self.tiers.disk.in_use.hold(&to_disk);
            self.tiers.cpu.in_use.hold(&to_disk);
            let sent = to_disk.clone();
            let by = site.pool.copies.below(sent, (STAGING, DISK), &[written]);
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

    fn finish(&mut self, _: u32) {}

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
        TierOccupancy {
            free: own.capacity - there,
            held: in_use - writing,
            cached: there - in_use,
            in_flight: writing,
            private: 0,
        }
    }

    fn eviction_counts(&self, tier: usize) -> EvictionCounts {
        EvictionCounts::of(self.tier(tier).evictions)
    }

    fn duplicates(&self, pool: &CopiedPool, tier: usize) -> u64 {
        let keys = self.tier(tier).chunks.keys().into_iter();
        let above =
            |&key: &u64| pool.has(key) || (tier > STAGING && self.tiers.cpu.chunks.contains(key));
        keys.filter(above).count() as u64
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

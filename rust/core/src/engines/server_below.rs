//! LMCache's server (0.5.7, `v1/distributed`) below vLLM's pool, in a timed run: its memory (L1), and a storage (L2)
//! below it. A chunk is one or more of the pool's blocks.
//!
//! A look-up starts at the first chunk that the pool does not have whole. Chunks that a step has computed behind it are
//! written to memory in one call, or not at all: nothing is evicted for them. From there they are copied to the storage,
//! until that is full. What a look-up finds there passes through memory, if all of it fits, and leaves it once it is
//! read. Chunks that are being copied stay; those that are still being written are not found.

use super::below::{Below, Prompt, Site};
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::key_index::KeyMap;
use super::l1_order::L1Policy;
use super::offload_tier::KeySet;
use super::server_level::ServerLevel;
use super::tier_chunks::TierChunks;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::records::Records;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{add_part, MoveId, Part, Violation, GPU, NO_MOVE, STAGING};
use crate::tiers::Route;

/// Index of the storage, below the memory.
const DISK: usize = STAGING + 1;

/// A level with its chunks that copies use.
#[derive(Debug)]
struct Level {
    kept: ServerLevel,
    in_use: HeldKeys,
    /// Chunks that are being written; those of the storage are in no order yet.
    writing: KeySet,
    /// Blocks evicted, and blocks that did not fit.
    counts: EvictionCounts,
}

/// Both levels; a storage of 0 chunks is none.
#[derive(Debug)]
pub struct ServerBelow {
    memory: Level,
    storage: Level,
    chunks: TierChunks,
    /// Chunks in memory that leave it once they are read.
    brought: KeySet,
    /// For each running request, the chunks that its look-up began with and ended before.
    looked_up: Vec<(u32, u32)>,
    /// By move from the storage, the chunks that the look-up found: they are renewed once it ends.
    found: KeyMap<MoveId, Vec<u64>>,
}

impl Level {
    fn new(policy: L1Policy, chunks: u64) -> Self {
        Self {
            kept: ServerLevel::new(policy, fit::<usize>(chunks)),
            in_use: HeldKeys::default(),
            writing: KeySet::default(),
            counts: EvictionCounts::default(),
        }
    }

    fn has(&self, key: u64) -> bool {
        self.kept.order.contains(key)
    }

    /// Returns true if a look-up finds a chunk.
    fn is_ready(&self, key: u64) -> bool {
        self.has(key) && !self.writing.contains(&key)
    }
}

impl ServerBelow {
    /// Empty levels of chunks below the pool, for a trace of `requests` requests.
    pub fn new(policy: L1Policy, chunks: TierChunks, requests: u32) -> Self {
        let capacities = chunks.capacities();
        Self {
            memory: Level::new(policy, capacities.cpu),
            storage: Level::new(policy, capacities.disk),
            chunks,
            brought: KeySet::default(),
            looked_up: vec![(0, 0); requests as usize],
            found: KeyMap::default(),
        }
    }

    /// Returns the chunk at which the look-up starts, and the first one that is not found.
    fn look_up(&self, prompt: Prompt<'_>, in_pool: u32) -> (u32, u32) {
        let (memory, storage) = (&self.memory, &self.storage);
        let (start, whole) = (in_pool / self.chunks.blocks, prompt.whole_chunks());
        let (mut in_memory, mut lacking) = (None, 0);
        for chunk in start..whole {
            let key = prompt.chunk_key(chunk);
            if memory.is_ready(key) {
                continue;
            }
            in_memory.get_or_insert(chunk);
            if !storage.is_ready(key) {
                return (start, self.fitting(chunk, in_memory, lacking));
            }
            lacking += usize::from(!memory.has(key));
        }
        (start, self.fitting(whole, in_memory, lacking))
    }

    /// Returns the end of a run on both levels, of which so many chunks are to come to memory; its end in memory if they
    /// do not fit.
    fn fitting(&self, end: u32, in_memory: Option<u32>, lacking: usize) -> u32 {
        match in_memory {
            Some(in_memory) if self.memory.kept.spare() < lacking => in_memory,
            _ => end,
        }
    }

    fn blocks(&self, chunks: usize) -> u64 {
        chunks as u64 * u64::from(self.chunks.blocks)
    }

    fn level(&self, tier: usize) -> &Level {
        if tier == STAGING {
            &self.memory
        } else {
            &self.storage
        }
    }

    /// Copies chunks that a move writes to memory on to the storage, until that is full.
    fn keep(&mut self, site: Site<'_>, keys: &[u64], written: MoveId) {
        let storage = &mut self.storage;
        let spare = storage.kept.spare() - storage.writing.len();
        let absent = |&key: &u64| !storage.has(key) && !storage.writing.contains(&key);
        let kept: Vec<u64> = keys.iter().copied().filter(absent).take(spare).collect();
        if !kept.is_empty() {
            storage.writing.extend(&kept);
            let sent = self.chunks.each_block(&kept);
            storage.in_use.hold(&sent);
            self.memory.in_use.hold(&sent);
            site.pool
                .copies
                .below(sent, Route::new(STAGING, DISK), &[written]);
        }
    }

    /// Lets chunks that were read once leave memory, unless another load reads them.
    fn leave(&mut self, keys: &[u64]) {
        for &key in keys {
            if !self.memory.in_use.contains(key) && self.brought.remove(&key) {
                self.memory.kept.order.forget(key);
                let storage = &self.storage;
                let is_here = |key| storage.has(key) || storage.writing.contains(&key);
                self.chunks.forget(&[key], is_here);
            }
        }
    }
}

impl Below for ServerBelow {
    fn tiers(&self) -> usize {
        DISK + usize::from(self.storage.kept.capacity > 0)
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

    fn parts(&self, _: &CopiedPool, prompt: Prompt<'_>, blocks: BlockRange) -> Vec<Part> {
        let (_, found) = self.look_up(prompt, blocks.start);
        let mut parts = Vec::new();
        for block in blocks.start..blocks.end.min(found * self.chunks.blocks) {
            let key = prompt.chunk_key(block / self.chunks.blocks);
            let tier = if self.memory.is_ready(key) {
                STAGING
            } else {
                DISK
            };
            add_part(
                &mut parts,
                Part::of(tier, NO_MOVE, BlockRange::new(block, block + 1)),
            );
        }
        parts
    }

    fn in_use(&mut self) -> &mut HeldKeys {
        &mut self.memory.in_use
    }

    /// Renews the chunks that the pool has, and those found behind them once all are in memory; later ones are to be
    /// offered.
    fn admitted(&mut self, prompt: Prompt<'_>, in_pool: u32) -> u32 {
        let (start, found) = self.look_up(prompt, in_pool);
        self.looked_up[prompt.request as usize] = (start, found);
        let covered = prompt.chunk_keys(0..start);
        self.memory.kept.order.touch(&covered);
        self.storage.kept.order.touch(&covered);
        let hits = prompt.chunk_keys(start..found);
        if hits.iter().all(|&key| self.memory.is_ready(key)) {
            self.memory.kept.order.touch(&hits);
        }
        found * self.chunks.blocks
    }

    /// Brings chunks of the storage to memory.
    fn load(
        &mut self,
        site: Site<'_>,
        prompt: Prompt<'_>,
        blocks: BlockRange,
        after: &[MoveId],
    ) -> Vec<MoveId> {
        let per = self.chunks.blocks;
        let keys = prompt.chunk_keys(blocks.start / per..blocks.end.div_ceil(per));
        let mut after = after.to_vec();
        if self.memory.is_ready(keys[0]) {
            return after;
        }
        let new = keys.iter().copied().filter(|&key| !self.memory.has(key));
        let new: Vec<u64> = new.collect();
        self.memory.kept.order.write(&new);
        self.memory.writing.extend(&new);
        self.brought.extend(&new);
        let sent = self.chunks.each_block(&keys);
        self.memory.in_use.hold(&sent);
        self.storage.in_use.hold(&sent);
        let read = site.pool.copies.below(sent, Route::up_from(DISK), &after);
        let (start, end) = self.looked_up[prompt.request as usize];
        self.found.insert(read, prompt.chunk_keys(start..end));
        after.push(read);
        after
    }

    /// Writes the absent chunks of a step together, or none: they are not offered again.
    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, blocks: BlockRange) -> bool {
        let per = self.chunks.blocks;
        let absent = |&chunk: &u32| !self.memory.has(prompt.chunk_key(chunk));
        let new: Vec<u32> = (blocks.start / per..blocks.end / per)
            .filter(absent)
            .collect();
        if new.is_empty() {
            return true;
        }
        if self.memory.kept.spare() < new.len() {
            self.memory.counts.overflowed += self.blocks(new.len());
            return true;
        }
        let keys: Vec<u64> = new.iter().map(|&chunk| prompt.chunk_key(chunk)).collect();
        self.memory.kept.order.write(&keys);
        self.memory.writing.extend(&keys);
        let sent = self.chunks.each_block(&keys);
        let mut blocks = Vec::with_capacity(sent.len());
        for chunk in new {
            self.chunks.stored(prompt, chunk..chunk + 1);
            let of_chunk = BlockRange::new(chunk * per, (chunk + 1) * per);
            blocks.extend(site.pool.blocks(prompt.request, of_chunk));
        }
        self.memory.in_use.hold(&sent);
        let written = site.pool.copies.write(sent, blocks, &keys);
        self.keep(site, &keys, written);
        true
    }

    /// Lets a copy's chunks go; those that it has written are found from now on.
    fn ended(&mut self, copy: &Copy, by: MoveId) {
        let mut keys = copy.keys.clone();
        keys.dedup();
        self.memory.in_use.release_keys(&copy.keys);
        if copy.from == DISK || copy.to == DISK {
            self.storage.in_use.release_keys(&copy.keys);
        }
        match copy.to {
            GPU => self.leave(&keys),
            DISK => {
                self.storage.writing.retain(|key| !keys.contains(key));
                self.storage.kept.order.store(&keys);
            }
            _ => {
                self.memory.writing.retain(|key| !keys.contains(key));
                self.memory.kept.order.written(&keys);
                if let Some(found) = self.found.remove(&by) {
                    self.storage.kept.order.touch(&keys);
                    self.memory.kept.order.touch(&found);
                }
            }
        }
    }

    /// Renews all chunks of the prompt.
    fn finish(&mut self, prompt: Prompt<'_>) {
        let keys = prompt.chunk_keys(0..prompt.whole_chunks());
        self.memory.kept.order.touch(&keys);
        self.storage.kept.order.touch(&keys);
    }

    fn run_loops(&mut self, records: &mut Records, now_ns: u64) {
        let (per, mut gone) = (u64::from(self.chunks.blocks), Vec::new());
        for (tier, level) in [(STAGING, &mut self.memory), (DISK, &mut self.storage)] {
            let is_locked = |key| level.in_use.contains(key);
            for (at_ns, dropped) in level.kept.run_until(now_ns, is_locked) {
                let blocks = dropped.len() as u64 * per;
                level.counts.evicted += blocks;
                records.evicted_from(tier, blocks, at_ns);
                gone.extend(dropped);
            }
        }
        let Self {
            memory, storage, ..
        } = self;
        let is_here = |key| memory.has(key) || storage.has(key) || storage.writing.contains(&key);
        self.chunks.forget(&gone, is_here);
    }

    fn occupancy(&self, _: &CopiedPool, tier: usize) -> TierOccupancy {
        let own = self.level(tier);
        let writing = own.writing.len();
        let there = own.kept.order.len() + if tier == DISK { writing } else { 0 };
        let in_use = own.in_use.len();
        let counts = [there, in_use, writing].map(|chunks| chunks as u64);
        self.chunks.occupancy(tier, counts)
    }

    fn eviction_counts(&self, tier: usize) -> EvictionCounts {
        self.level(tier).counts
    }

    fn duplicates(&self, pool: &CopiedPool, tier: usize) -> u64 {
        let keys = self.level(tier).kept.order.keys().into_iter();
        let counted = keys.map(|key| match tier == DISK && self.memory.has(key) {
            true => u64::from(self.chunks.blocks),
            false => self.chunks.in_pool(|key| pool.has(key), key),
        });
        counted.sum()
    }

    fn check(&self, _: &CopiedPool) -> Result<(), Violation> {
        for level in [&self.memory, &self.storage] {
            let (there, spare) = (level.kept.order.len(), level.kept.capacity);
            if there > spare {
                return Err(format!("I2: {there} of {spare} chunks on a level"));
            }
            if !level
                .in_use
                .all(|key| level.has(key) || level.writing.contains(&key))
            {
                return Err("I3: a chunk was evicted while it was copied".into());
            }
        }
        Ok(())
    }
}

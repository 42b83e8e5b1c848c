//! LMCache's CPU and disk tiers (0.5.6, `v1/storage_backend`) below vLLM's pool, in a timed run; a chunk is a block.
//!
//! A look-up goes from the prompt's first chunk over the CPU, then over the disk; what is loaded from the disk goes
//! through the CPU and stays there. What a step has computed behind the look-up is stored on the CPU, and from there
//! on the disk.

use super::below::{Below, InParts, Prompt, Site};
use super::chunk_order::ChunkOrder;
use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use super::key_index::KeyMap;
use crate::store::contract::{TierLosses, TierRoom};
use crate::store::{MoveId, Part, Violation, NO_MOVE, STAGING};

/// The tier below the CPU.
const DISK: usize = STAGING + 1;

/// Chunks of one tier, those of them in use by copies, and how many were evicted.
#[derive(Debug)]
struct Tier {
    chunks: ChunkOrder,
    capacity: u64,
    in_use: HeldKeys,
    evictions: u64,
}

impl Tier {
    fn new(chunks: ChunkOrder, capacity: u64) -> Self {
        Self {
            chunks,
            capacity,
            in_use: HeldKeys::default(),
            evictions: 0,
        }
    }

    /// Removes the next chunk that is not in use and may go; whether there was one.
    fn evict(&mut self, is_kept: impl Fn(u64) -> bool) -> bool {
        let in_use = &self.in_use;
        let victim = self
            .chunks
            .evict(|key| in_use.contains(key) || is_kept(key));
        self.evictions += u64::from(victim.is_some());
        victim.is_some()
    }
}

/// The tiers, and what is on its way to the disk.
#[derive(Debug)]
pub struct LmcacheBelow {
    cpu: Tier,
    disk: Tier,
    /// Chunks that are being written to the disk, by the move.
    to_disk: KeyMap<u64, MoveId>,
    /// By running request, the chunks of its prompt that its look-up found on the CPU.
    on_cpu: Vec<u32>,
}

impl LmcacheBelow {
    /// Empty tiers below the pool of a trace of so many requests; a disk of no chunks is none.
    pub fn new(orders: [ChunkOrder; 2], capacity_chunks: (u64, u64), requests: u32) -> Self {
        let [cpu, disk] = orders;
        Self {
            cpu: Tier::new(cpu, capacity_chunks.0),
            disk: Tier::new(disk, capacity_chunks.1),
            to_disk: KeyMap::default(),
            on_cpu: vec![0; requests as usize],
        }
    }

    /// The leading chunks found on the CPU, and those with what follows on disk, as far as the CPU has room for them.
    fn look_up(&self, prompt: Prompt<'_>) -> (u32, u32) {
        let whole = prompt.whole_blocks;
        let missing = |tier: &Tier, block: u32| !tier.chunks.contains(prompt.key(block));
        let on_cpu = (0..whole).find(|&block| missing(&self.cpu, block));
        let on_cpu = on_cpu.unwrap_or(whole);
        let on_disk = (on_cpu..whole).find(|&block| missing(&self.disk, block));
        let on_disk = on_disk.unwrap_or(whole) - on_cpu;
        if on_disk == 0 {
            return (on_cpu, on_cpu);
        }
        // the engine would wait for more of its CPU memory
        let both = self.cpu.in_use.among(prompt.keys((0, on_cpu)));
        let kept = u64::from(on_cpu) + (self.cpu.in_use.len() - both) as u64;
        let room = self.cpu.capacity - kept;
        (on_cpu, on_cpu + room.min(u64::from(on_disk)) as u32)
    }

    /// Makes room on the CPU; for how many chunks there is some, and how many were evicted.
    fn take(&mut self, chunks: usize, pinned: &HeldKeys) -> (usize, u64) {
        let before = self.cpu.evictions;
        for taken in 0..chunks {
            let is_full = self.cpu.chunks.len() + taken as u64 == self.cpu.capacity;
            if is_full && !self.cpu.evict(|key| pinned.contains(key)) {
                return (taken, self.cpu.evictions - before);
            }
        }
        (chunks, self.cpu.evictions - before)
    }

    /// Puts chunks on the CPU; those that were not there.
    fn put(&mut self, keys: &[u64]) -> Vec<u64> {
        let chunks = &mut self.cpu.chunks;
        let new = keys.iter().copied().filter(|&key| !chunks.contains(key));
        let new: Vec<u64> = new.collect();
        new.iter().for_each(|&key| chunks.put(key));
        new
    }

    /// Stores chunks on disk too; the new ones, and how many were evicted.
    fn store_on_disk(&mut self, keys: &[u64]) -> (Vec<u64>, u64) {
        let (mut new, before) = (Vec::new(), self.disk.evictions);
        for &key in keys {
            if self.disk.capacity == 0 {
                break;
            }
            if self.disk.chunks.contains(key) {
                self.disk.chunks.hit(key);
            } else if self.disk.chunks.len() < self.disk.capacity || self.disk.evict(|_| false) {
                self.disk.chunks.put(key);
                new.push(key);
            }
        }
        (new, self.disk.evictions - before)
    }

    fn tier(&self, tier: usize) -> &Tier {
        if tier == STAGING {
            &self.cpu
        } else {
            &self.disk
        }
    }
}

impl Below for LmcacheBelow {
    fn tiers(&self) -> usize {
        if self.disk.capacity == 0 {
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
        let mut parts = InParts::default();
        for block in start..limit.min(below) {
            let key = prompt.key(block);
            parts.add(
                block,
                if block < on_cpu {
                    (STAGING, pool.copies.written_by(key))
                } else {
                    let by = self.to_disk.get(&key);
                    (DISK, by.copied().unwrap_or(NO_MOVE))
                },
            );
        }
        parts.done()
    }

    /// Nothing: look-up and loads of a request are one moment.
    fn protect(&mut self, _: Vec<u64>) -> Vec<u64> {
        Vec::new()
    }

    fn hold(&mut self, keys: &[u64]) {
        self.cpu.in_use.hold(keys);
    }

    fn let_be(&mut self, keys: &[u64]) {
        self.cpu.in_use.let_be(keys);
    }

    /// Counts the hits of the look-up, the last chunk first; what follows it is to be offered.
    fn admitted(&mut self, prompt: Prompt<'_>) -> u32 {
        let (on_cpu, below) = self.look_up(prompt);
        self.on_cpu[prompt.request as usize] = on_cpu;
        for key in prompt.keys((0, on_cpu)).rev() {
            self.cpu.chunks.hit(key);
        }
        for key in prompt.keys((on_cpu, below)).rev() {
            self.disk.chunks.hit(key);
        }
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
        let mut pinned = HeldKeys::default();
        pinned.hold(&prompt.keys((0, on_cpu)).collect::<Vec<u64>>());
        let (taken, evicted) = self.take(keys.len(), &pinned);
        debug_assert_eq!(taken, keys.len(), "what was found has room");
        keys.iter().for_each(|&key| self.disk.chunks.hit(key));
        let new = self.put(&keys);
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        self.disk.in_use.hold(&keys);
        self.cpu.in_use.hold(&keys);
        let copy = Copy {
            keys,
            blocks: Vec::new(),
            from: DISK,
            to: STAGING,
        };
        let read = site.pool.copies.start(copy, &after);
        site.pool.copies.is_written(&new, read);
        after.push(read);
        after
    }

    fn offers_after(&self, before: u32, _: u32) -> u32 {
        before
    }

    /// Stores blocks as far as there is room; what finds none is not stored.
    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, (start, end): (u32, u32)) -> bool {
        let mut keys: Vec<u64> = prompt.keys((start, end)).collect();
        let (taken, evicted) = self.take(keys.len(), &HeldKeys::default());
        keys.truncate(taken);
        let new = self.put(&keys);
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        if keys.is_empty() {
            return true;
        }
        let blocks = site
            .pool
            .blocks(prompt.request, (start, start + taken as u32));
        self.cpu.in_use.hold(&keys);
        let written = site.pool.copies.write(keys.clone(), blocks, &new);
        let (to_disk, lost) = self.store_on_disk(&keys);
        site.records.evicted_from(DISK, lost, site.now_ns);
        if !to_disk.is_empty() {
            self.disk.in_use.hold(&to_disk);
            self.cpu.in_use.hold(&to_disk);
            let copy = Copy {
                keys: to_disk.clone(),
                blocks: Vec::new(),
                from: STAGING,
                to: DISK,
            };
            let by = site.pool.copies.start(copy, &[written]);
            self.to_disk
                .extend(to_disk.into_iter().map(|key| (key, by)));
        }
        true
    }

    fn ended(&mut self, copy: &Copy, by: MoveId) {
        self.cpu.in_use.let_be(&copy.keys);
        if DISK == copy.from || DISK == copy.to {
            self.disk.in_use.let_be(&copy.keys);
        }
        for key in &copy.keys {
            if self.to_disk.get(key) == Some(&by) {
                self.to_disk.remove(key);
            }
        }
    }

    fn finish(&mut self, _: u32) {}

    fn room(&self, pool: &CopiedPool, tier: usize) -> TierRoom {
        let own = self.tier(tier);
        let there = own.chunks.len();
        let (writing, in_use) = if tier == STAGING {
            (pool.copies.writing_blocks(), own.in_use.len() as u64)
        } else {
            let here = |key: &&u64| own.chunks.contains(**key);
            let writing = self.to_disk.keys().filter(here).count() as u64;
            (writing, own.in_use.count(|key| own.chunks.contains(key)))
        };
        TierRoom {
            free: own.capacity - there,
            active: 0,
            cached: there - writing,
            in_flight: writing,
            evictable: there - in_use,
        }
    }

    fn losses(&self, tier: usize) -> TierLosses {
        TierLosses {
            evicted: self.tier(tier).evictions,
            ..TierLosses::default()
        }
    }

    fn duplicates(&self, pool: &CopiedPool, tier: usize) -> u64 {
        let keys = self.tier(tier).chunks.keys().into_iter();
        let above = |&key: &u64| pool.has(key) || (tier > STAGING && self.cpu.chunks.contains(key));
        keys.filter(above).count() as u64
    }

    fn check(&self, pool: &CopiedPool) -> Result<(), Violation> {
        for tier in [&self.cpu, &self.disk] {
            if tier.chunks.len() > tier.capacity {
                let (there, room) = (tier.chunks.len(), tier.capacity);
                return Err(format!("I2: {there} of {room} blocks in a tier"));
            }
        }
        if !pool.copies.all_written(|key| self.cpu.chunks.contains(key)) {
            return Err("I3: a block was evicted from the CPU while it was written".into());
        }
        Ok(())
    }
}

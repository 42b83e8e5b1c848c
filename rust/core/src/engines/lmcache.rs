//! Requests one after another against LMCache's CPU tier and, below it, its disk tier (0.5.6).
//!
//! `LocalCPUBackend`, `LocalDiskBackend` and the storage manager's order of calls: look up and touch, load from
//! disk, store. A chunk takes one unit of CPU memory; only whole chunks of prompts are stored.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::chunk_order::{ChunkOrder, ChunkPolicy};
use super::key_index::KeyHasher;
use super::requests::Requests;
use crate::causes::engine::{Lookup, MissCauses};
use crate::causes::eviction_log::EvictionLog;

/// What a replay decided, in chunks.
#[derive(Debug, Default)]
pub struct LmcacheReplay {
    /// Hit tokens of each request.
    pub hits: Vec<i64>,
    /// Chunks that each request loaded from disk.
    pub from_disk: Vec<i64>,
    /// Chunks hit on the CPU.
    pub cpu_hits: u64,
    /// Chunks that got room to be stored, with those that turned out to be there.
    pub stored: u64,
    /// Requests that could not store all their chunks.
    pub short_stores: u64,
    /// Chunks evicted from the CPU.
    pub cpu_evictions: u64,
    /// Chunks evicted from the disk.
    pub disk_evictions: u64,
    /// Keys on the CPU at the end, in order.
    pub cpu_keys: Vec<u64>,
    /// Keys on the disk at the end, in order.
    pub disk_keys: Vec<u64>,
    /// Reasons of the misses, where asked for.
    pub causes: Option<MissCauses>,
}

/// Both tiers.
struct Tiers {
    cpu: ChunkOrder,
    disk: ChunkOrder,
    cpu_chunks: u64,
    disk_chunks: u64,
    /// Units of CPU memory that no chunk has.
    free_units: u64,
    log: Option<EvictionLog>,
    done: LmcacheReplay,
}

/// Replays every request; `disk_chunks` 0 is no disk. The window is not used.
///
/// What is found on disk beyond the whole CPU memory is not loaded: the engine would wait for it forever.
pub fn replay(
    requests: &Requests<'_>,
    policy: ChunkPolicy,
    cpu_chunks: u64,
    disk_chunks: u64,
) -> LmcacheReplay {
    let mut tiers = Tiers {
        cpu: ChunkOrder::new(policy),
        disk: ChunkOrder::new(policy),
        cpu_chunks,
        disk_chunks,
        free_units: cpu_chunks,
        log: requests.log(),
        done: LmcacheReplay::default(),
    };
    let mut causes = requests.causes();
    let chunk = u64::from(requests.block_size);
    for request in 0..requests.keys.requests() {
        let keys = requests.prompt_keys(request, 0);
        let (on_cpu, found) = tiers.look_up(&keys);
        let hits = found.min(tiers.cpu_chunks as usize);
        if let (Some(causes), Some(log)) = (&mut causes, &mut tiers.log) {
            log.now = request;
            let limit = keys.len() as u32;
            let lookup = Lookup {
                limit,
                ..requests.lookup(request, hits as u32)
            };
            let (cpu, disk) = (&tiers.cpu, &tiers.disk);
            let key = |block: u32| keys[block as usize];
            let is_here = |block| cpu.contains(key(block)) || disk.contains(key(block));
            causes.count(lookup, log, Some(&is_here));
            causes.learn(request, limit);
        }
        tiers.load(&keys[..hits], on_cpu);
        tiers.store(&keys[hits..]);
        tiers.done.cpu_hits += on_cpu as u64;
        tiers.done.from_disk.push((hits - on_cpu) as i64);
        tiers.done.hits.push(hits as i64 * chunk as i64);
    }
    LmcacheReplay {
        cpu_keys: tiers.cpu.keys(),
        disk_keys: tiers.disk.keys(),
        causes,
        ..tiers.done
    }
}

impl Tiers {
    /// Leading chunks on the CPU, and leading chunks that either tier has, the CPU's first; each is hit, the
    /// last first.
    fn look_up(&mut self, keys: &[u64]) -> (usize, usize) {
        let on_cpu = keys.iter().take_while(|&&k| self.cpu.contains(k)).count();
        let behind = keys[on_cpu..].iter();
        let found = on_cpu + behind.take_while(|&&k| self.disk.contains(k)).count();
        keys[..on_cpu].iter().rev().for_each(|&k| self.cpu.hit(k));
        let on_disk = keys[on_cpu..found].iter();
        on_disk.rev().for_each(|&k| self.disk.hit(k));
        (on_cpu, found)
    }

    /// Brings the chunks from `on_cpu` on from disk to the CPU, those before them pinned.
    fn load(&mut self, keys: &[u64], on_cpu: usize) {
        let (pinned, loaded) = keys.split_at(on_cpu);
        if loaded.is_empty() {
            return;
        }
        let pinned: HashSet<u64, BuildHasherDefault<KeyHasher>> = pinned.iter().copied().collect();
        for _ in loaded {
            let fits = self.take(&pinned);
            debug_assert!(fits, "all that is not pinned may go");
        }
        loaded.iter().for_each(|&key| self.disk.hit(key));
        loaded.iter().for_each(|&key| self.put(key));
    }

    /// Takes a free unit, evicting if need be; false where nothing may go.
    fn take(&mut self, pinned: &HashSet<u64, BuildHasherDefault<KeyHasher>>) -> bool {
        if self.free_units == 0 {
            let Some(victim) = self.cpu.evict(|key| pinned.contains(&key)) else {
                return false;
            };
            self.free_units += 1;
            self.done.cpu_evictions += 1;
            if let (Some(log), false) = (&mut self.log, self.disk.contains(victim)) {
                log.evicted(victim, 1);
            }
        }
        self.free_units -= 1;
        true
    }

    /// Gives a taken unit to a chunk, or back where the chunk is there already.
    fn put(&mut self, key: u64) {
        if self.cpu.contains(key) {
            self.free_units += 1;
        } else {
            self.cpu.put(key);
        }
    }

    /// Stores chunks on the CPU and on disk, as many as get a unit.
    fn store(&mut self, keys: &[u64]) {
        let unpinned = HashSet::default();
        let stored = keys.iter().take_while(|_| self.take(&unpinned)).count();
        self.done.stored += stored as u64;
        self.done.short_stores += u64::from(stored < keys.len());
        keys[..stored].iter().for_each(|&key| self.put(key));
        if self.disk_chunks > 0 {
            keys[..stored]
                .iter()
                .for_each(|&key| self.store_on_disk(key));
        }
    }

    fn store_on_disk(&mut self, key: u64) {
        if self.disk.contains(key) {
            return self.disk.hit(key);
        }
        if self.disk.len() == self.disk_chunks {
            if let Some(victim) = self.disk.evict(|_| false) {
                self.done.disk_evictions += 1;
                if let (Some(log), false) = (&mut self.log, self.cpu.contains(victim)) {
                    log.evicted(victim, 1);
                }
            }
        }
        self.disk.put(key);
    }
}

//! vLLM's block pool (0.33.0, `vllm/v1/core/block_pool.py`, `kv_cache_manager.py`; watermark 0, one
//! full-attention group), one step of one request at a time.
//!
//! The free blocks stand in one queue, taken from its front. A block keeps its key until it is taken again, and
//! a key may have several blocks: the first inserted answers. Keys exist from
//! `cache` on, so a hit on a block of the same scheduler step is legal.
//!
//! Blocks of one id that one request got together are one run for as long as the same requests hold them, so a
//! prompt costs its ids, not its blocks. A block without a key is like any other: those are only counted.

mod check;
mod holds;
mod runs;

use std::sync::Arc;

use super::key_index::KeyIndex;
use crate::causes::eviction_log::EvictionLog;
use crate::ids::NONE;
use crate::keys::BlockKeys;
use holds::Holds;
use runs::Runs;

/// What the pool has done since it was made, in blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// Taken from the free queue.
    pub taken: u64,
    /// Given a key.
    pub inserted: u64,
    /// Taken while they had a key.
    pub evicted: u64,
}

/// The blocks of one GPU, the keys they have and the requests that hold them.
#[derive(Debug)]
pub struct BlockPool {
    keys: Arc<BlockKeys>,
    /// The blocks with a key.
    runs: Runs,
    capacity: u32,
    /// Free blocks: all, and those without a key, which stand before all others in the queue.
    free: u32,
    blank: u32,
    /// What each request holds.
    held: Vec<Holds>,
    counts: PoolCounts,
    /// Blocks with a key that somebody holds.
    held_keyed: u64,
    /// Evictions by time, where the reasons of misses are asked for.
    pub log: Option<EvictionLog>,
    /// Keys that blocks got (true) and lost, where that is asked for: each block's, duplicates too.
    pub changes: Option<Vec<(bool, u64)>>,
}

impl BlockPool {
    /// A pool of `capacity_blocks` free blocks without keys. Cost: 4 bytes an id of the trace.
    pub fn new(keys: Arc<BlockKeys>, capacity_blocks: u32) -> Self {
        let index = KeyIndex::new(keys.distinct_ids(), keys.blocks_per_id());
        Self {
            runs: Runs::new(index),
            capacity: capacity_blocks,
            free: capacity_blocks,
            blank: capacity_blocks,
            held: vec![Holds::default(); keys.requests() as usize],
            counts: PoolCounts::default(),
            held_keyed: 0,
            log: None,
            changes: None,
            keys,
        }
    }

    /// The keys of its requests' blocks.
    pub fn keys(&self) -> &BlockKeys {
        &self.keys
    }

    /// Gives its keys away, so that they can grow; until `keep_keys` it can be asked nothing.
    pub fn lend_keys(&mut self) -> Arc<BlockKeys> {
        std::mem::take(&mut self.keys)
    }

    /// Takes keys that name all that its own did, and requests to come; ids are below `ids`.
    pub fn keep_keys(&mut self, keys: Arc<BlockKeys>, ids: u32) {
        let requests = keys.requests() as usize;
        self.held.resize(requests, Holds::default());
        self.runs.index.know_ids(ids);
        self.keys = keys;
    }

    /// How many requests it knows.
    pub fn requests(&self) -> u32 {
        self.held.len() as u32
    }

    /// Blocks in the free queue.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Blocks that a request holds.
    pub fn held_blocks(&self, request: u32) -> u32 {
        self.held[request as usize].blocks
    }

    /// Blocks with a key that somebody holds.
    pub fn held_keyed(&self) -> u64 {
        self.held_keyed
    }

    /// How many of a request's leading blocks have been offered their keys.
    pub fn keyed_prefix(&self, request: u32) -> u32 {
        self.held[request as usize].keyed
    }

    /// What has been done so far.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// How many of the request's leading blocks, at most `limit`, have a block here; nothing changes.
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        let mut block = 0;
        while block < limit {
            let Some((slot, run)) = self.find(request, block) else {
                break;
            };
            let asked = run.min(limit - block);
            let found = self.runs.resident(slot, asked);
            block += found;
            if found < asked {
                break;
            }
        }
        block
    }

    /// How many of the request's first `hits` blocks, all resident, nobody holds.
    pub fn idle_hits(&self, request: u32, hits: u32) -> u32 {
        let (mut block, mut idle) = (0, 0);
        while block < hits {
            let Some((slot, run)) = self.find(request, block) else {
                break;
            };
            let blocks = run.min(hits - block);
            idle += self.runs.idle(slot, blocks);
            block += blocks;
        }
        idle
    }

    /// Whether another request can name blocks of the request's answer.
    pub fn answers_are_shared(&self, request: u32, prompt_blocks: u32) -> bool {
        self.keys.continues(request) || self.keys.full_blocks(request) > prompt_blocks
    }

    /// Whether the request's block has a block here under its key.
    pub fn has(&self, request: u32, block: u32) -> bool {
        self.find(request, block)
            .is_some_and(|(slot, _)| self.runs.index.first(slot) != NONE)
    }

    /// Notes that a tier below has lost a key, which is an eviction where the pool does not have it.
    pub fn left_below(&mut self, key: u64) {
        let is_here = self
            .runs
            .index
            .find(key)
            .is_some_and(|(slot, _)| self.runs.index.first(slot) != NONE);
        if let (Some(log), false) = (&mut self.log, is_here) {
            log.evicted(key, 1);
        }
    }

    /// The slot of a block's key and how many of the request's next blocks have the slots after it.
    fn find(&self, request: u32, block: u32) -> Option<(u32, u32)> {
        let (key, run) = self.keys.run(request, block);
        let (slot, chunk) = self.runs.index.find(key)?;
        Some((slot, run.min(chunk)))
    }

    /// Holds the first `hits` blocks of the request, which must be resident, and takes new ones until it holds
    /// `blocks`; false, and no change, where the free queue is too short. The request holds nothing before.
    pub fn allocate(&mut self, request: u32, hits: u32, blocks: u32) -> bool {
        debug_assert!(self.held[request as usize].blocks == 0);
        if blocks - hits + self.idle_hits(request, hits) > self.free {
            return false;
        }
        let mut held = std::mem::take(&mut self.held[request as usize]);
        while held.blocks < hits {
            let found = self.find(request, held.blocks);
            let (slot, run) = found.expect("hits are resident");
            let end = slot + run.min(hits - held.blocks);
            let idle = self.runs.hold(slot, end, &mut held);
            self.free -= idle;
            self.held_keyed += u64::from(idle);
        }
        self.held[request as usize] = held;
        self.extend(request, blocks)
    }

    /// Takes new blocks until the request holds `blocks`; false, and no change, where they are too few.
    pub fn extend(&mut self, request: u32, blocks: u32) -> bool {
        let missing = blocks.saturating_sub(self.held_blocks(request));
        if missing > self.free {
            return false;
        }
        let blank = missing.min(self.blank);
        self.blank -= blank;
        self.evict(missing - blank);
        self.free -= missing;
        self.counts.taken += u64::from(missing);
        self.held[request as usize].blocks += missing;
        true
    }

    /// Gives the request's first `blocks` blocks, all full, their keys where they have none.
    pub fn cache(&mut self, request: u32, blocks: u32) {
        let keyed = self.held[request as usize].keyed;
        if keyed >= blocks {
            return;
        }
        let mut held = std::mem::take(&mut self.held[request as usize]);
        while held.keyed < blocks {
            let (key, run) = self.keys.run(request, held.keyed);
            let (slot, chunk) = self.runs.index.open(key);
            let added = run.min(chunk).min(blocks - held.keyed);
            self.runs.insert(slot, slot + added, &mut held);
            if let Some(changes) = &mut self.changes {
                changes.extend((0..u64::from(added)).map(|at| (true, key + at)));
            }
        }
        self.held[request as usize] = held;
        self.counts.inserted += u64::from(blocks - keyed);
        self.held_keyed += u64::from(blocks - keyed);
    }

    /// Lets go of all the request's blocks, last to first: of those without another holder the ones without
    /// a key queue in front, as a group, and the others at the end.
    pub fn release(&mut self, request: u32) {
        let held = std::mem::take(&mut self.held[request as usize]);
        let blank = held.blocks - held.keyed;
        let idle = self.runs.release(&held);
        self.held_keyed -= u64::from(idle);
        self.blank += blank;
        self.free += blank + idle;
    }

    /// Takes the keys of all blocks; false, and no change, while some are held.
    pub fn clear(&mut self) -> bool {
        if self.free < self.capacity {
            return false;
        }
        self.evict(self.free - self.blank);
        self.blank = self.free;
        true
    }

    /// Takes the keys of the first `blocks` blocks of the queue that have one, and the blocks out of it.
    fn evict(&mut self, blocks: u32) {
        let mut left = blocks;
        while left > 0 {
            let run = self.runs.front();
            let (slot, blocks) = self.runs.end(run, left);
            left -= blocks;
            if let Some(changes) = &mut self.changes {
                let keys = (slot..slot + blocks).rev().map(|s| self.runs.index.key(s));
                changes.extend(keys.map(|key| (false, key)));
            }
            if let (Some(log), false) = (&mut self.log, self.runs.is_duplicated(run)) {
                log.evicted(self.runs.index.key(slot), blocks);
            }
            self.runs.evict(run, blocks);
        }
        self.counts.evicted += u64::from(blocks);
    }

    /// Blocks with a key, and distinct keys.
    pub fn cached_blocks(&self) -> (u64, u64) {
        (
            self.counts.inserted - self.counts.evicted,
            self.runs.index.keys(),
        )
    }

    /// The keys of the free blocks, next to be taken first; `NO_KEY` where there is none.
    pub fn free_queue(&self) -> Vec<u64> {
        let mut keys = Vec::with_capacity(self.free as usize);
        keys.resize(self.blank as usize, NO_KEY);
        keys.extend(self.runs.queued());
        keys
    }

    /// Bytes held on the heap, the trace's keys left out.
    pub fn heap_bytes(&self) -> usize {
        let held: usize = self.held.iter().map(Holds::heap_bytes).sum();
        self.runs.heap_bytes() + held
    }
}

/// What stands for the key of a block without one.
pub const NO_KEY: u64 = u64::MAX;

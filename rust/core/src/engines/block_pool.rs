//! vLLM's block pool (0.33.0, `vllm/v1/core/block_pool.py`, `kv_cache_manager.py`; watermark 0, one
//! full-attention group), one step of one request at a time.
//!
//! The free blocks are in one queue and are taken from its front. A block keeps its key until it is taken
//! again.
//! A key may have several blocks; a look-up returns the first inserted. Keys exist from `cache` on, so a hit on a
//! block of the same scheduler step is legal.
//!
//! Blocks of one id that one request allocated together are one run for as long as the same requests hold them. The
//! cost of a prompt thus depends on its ids, not on its blocks. Blocks without a key are only counted.

mod check;
mod holds;
mod runs;

use std::sync::Arc;

use super::key_index::KeyIndex;
use crate::causes::eviction_log::EvictionLog;
use crate::convert::fit;
use crate::ids::NONE;
use crate::keys::BlockKeys;
use holds::Holds;
use runs::Runs;

/// Counts of the pool's operations since its creation, in blocks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// Blocks taken from the free queue.
    pub taken: u64,
    /// Blocks that got a key.
    pub inserted: u64,
    /// Blocks taken while they had a key.
    pub evicted: u64,
}

/// Blocks of one GPU, their keys and the requests that hold them.
#[derive(Debug)]
pub struct BlockPool {
    keys: Arc<BlockKeys>,
    /// Blocks with a key.
    runs: Runs,
    capacity: u32,
    /// Frees blocks: all, and those without a key, which are before all others in the queue.
    free: u32,
    blank: u32,
    /// Blocks that each request holds.
    held: Vec<Holds>,
    counts: PoolCounts,
    /// Number of held blocks with a key.
    held_keyed: u64,
    /// Log of evictions, if the causes of misses are recorded.
    pub log: Option<EvictionLog>,
    /// Keys that blocks got (true) and lost, if recorded: those of each block, including duplicates.
    pub changes: Option<Vec<(bool, u64)>>,
}

impl BlockPool {
    /// A pool of `capacity_blocks` free blocks without keys. Cost: 4 bytes per id of the trace.
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

    /// Returns the keys of the requests' blocks.
    pub fn keys(&self) -> &BlockKeys {
        &self.keys
    }

    /// Moves the keys out so that they can grow. The pool must not be used until `keep_keys`.
    pub fn lend_keys(&mut self) -> Arc<BlockKeys> {
        std::mem::take(&mut self.keys)
    }

    /// Sets keys that extend the previous ones and name requests to come; ids are below `ids`.
    pub fn keep_keys(&mut self, keys: Arc<BlockKeys>, ids: u32) {
        let requests = keys.requests() as usize;
        self.held.resize(requests, Holds::default());
        self.runs.index.know_ids(ids);
        self.keys = keys;
    }

    /// Returns the number of known requests.
    pub fn requests(&self) -> u32 {
        fit::<u32>(self.held.len())
    }

    /// Returns the number of blocks in the free queue.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Returns the number of blocks that a request holds.
    pub fn held_blocks(&self, request: u32) -> u32 {
        self.held[request as usize].blocks
    }

    /// Returns the number of held blocks with a key.
    pub fn held_keyed(&self) -> u64 {
        self.held_keyed
    }

    /// Returns the number of a request's leading blocks that went through `cache`.
    pub fn keyed_prefix(&self, request: u32) -> u32 {
        self.held[request as usize].keyed
    }

    /// Returns the counts of operations so far.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// Returns the number of the request's leading blocks, at most `limit`, that are resident. No change.
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

    /// Returns the number of the request's first `hits` blocks, all resident, that no request holds.
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

    /// Returns true if another request can name blocks of the request's answer.
    pub fn answers_are_shared(&self, request: u32, prompt_blocks: u32) -> bool {
        self.keys.continues(request) || self.keys.full_blocks(request) > prompt_blocks
    }

    /// Returns true if the request's block is resident under its key.
    pub fn has(&self, request: u32, block: u32) -> bool {
        self.find(request, block)
            .is_some_and(|(slot, _)| self.runs.index.first(slot) != NONE)
    }

    /// Logs that a tier below has dropped a key, which is an eviction if the pool does not have it.
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

    /// Returns the slot of a block's key and the number of the request's next blocks in the slots after it.
    fn find(&self, request: u32, block: u32) -> Option<(u32, u32)> {
        let (key, run) = self.keys.run(request, block);
        let (slot, chunk) = self.runs.index.find(key)?;
        Some((slot, run.min(chunk)))
    }

    /// Holds the first `hits` blocks of the request, which must be resident, and takes new blocks until it
    /// holds `blocks`. Returns false, with no change, if the free queue is too short. The request must hold
    /// nothing before.
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

    /// Takes new blocks until the request holds `blocks`. Returns false, with no change, if too few are free.
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

    /// Gives the request's first `blocks` blocks, all full, their keys if they have none.
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

    /// Releases all the request's blocks, last to first. Blocks without another holder join the queue: those
    /// without a key at the front, as a group, and the others at the end.
    pub fn release(&mut self, request: u32) {
        let held = std::mem::take(&mut self.held[request as usize]);
        let blank = held.blocks - held.keyed;
        let idle = self.runs.release(&held);
        self.held_keyed -= u64::from(idle);
        self.blank += blank;
        self.free += blank + idle;
    }

    /// Removes the keys of all blocks. Returns false, with no change, while some are held.
    pub fn clear(&mut self) -> bool {
        if self.free < self.capacity {
            return false;
        }
        self.evict(self.free - self.blank);
        self.blank = self.free;
        true
    }

    /// Takes the first `blocks` blocks with a key out of the queue, and removes their keys.
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

    /// Returns the number of blocks with a key, and of distinct keys.
    pub fn cached_blocks(&self) -> (u64, u64) {
        (
            self.counts.inserted - self.counts.evicted,
            self.runs.index.keys(),
        )
    }

    /// Returns the keys of the free blocks in the order in which they are taken; `NO_KEY` for blocks without a
    /// key.
    pub fn free_queue(&self) -> Vec<u64> {
        let mut keys = Vec::with_capacity(self.free as usize);
        keys.resize(self.blank as usize, NO_KEY);
        keys.extend(self.runs.queued());
        keys
    }

    /// Returns the bytes on the heap, excluding the trace's keys.
    pub fn heap_bytes(&self) -> usize {
        let held: usize = self.held.iter().map(Holds::heap_bytes).sum();
        self.runs.heap_bytes() + held
    }
}

/// Marker for a block without a key.
pub const NO_KEY: u64 = u64::MAX;

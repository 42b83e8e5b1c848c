//! vLLM's block pool (0.33.0, `vllm/v1/core/block_pool.py`, `kv_cache_manager.py`; watermark 0, one
//! full-attention group), one step of one request at a time.
//!
//! Blocks are numbered from 1; the free ones stand in one queue, taken from its front. A block keeps its key
//! until it is taken again, and a key may have several blocks: the first inserted answers. Keys exist from
//! `cache` on, so a hit on a block of the same scheduler step is legal.

mod check;

use std::sync::Arc;

use super::key_index::{KeyIndex, NONE};
use crate::causes::eviction_log::EvictionLog;
use crate::keys::BlockKeys;

/// The queue's two ends are one node, block 0, which no request ever gets.
const ENDS: usize = 0;

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
    index: KeyIndex,
    /// Queue links, holders, slot of the key (`NONE` without one) and next duplicate, by block.
    previous: Vec<u32>,
    next: Vec<u32>,
    holders: Vec<u32>,
    slot: Vec<u32>,
    duplicate: Vec<u32>,
    free: u32,
    /// Blocks of each request, and how many leading ones have been offered their keys.
    held: Vec<Vec<u32>>,
    cached: Vec<u32>,
    counts: PoolCounts,
    /// Blocks with a key that somebody holds.
    held_keyed: u64,
    /// Evictions by time, where the reasons of misses are asked for.
    pub log: Option<EvictionLog>,
    /// Keys that blocks got (true) and lost, where that is asked for: each block's, duplicates too.
    pub changes: Option<Vec<(bool, u64)>>,
}

impl BlockPool {
    /// A pool of `capacity_blocks` free blocks without keys. Cost: 20 bytes a block, 4 an id of the trace.
    pub fn new(keys: Arc<BlockKeys>, capacity_blocks: u32) -> Self {
        let nodes = capacity_blocks + 1;
        let requests = keys.requests() as usize;
        Self {
            index: KeyIndex::new(keys.distinct_ids(), keys.blocks_per_id()),
            previous: (0..nodes)
                .map(|b| if b == 0 { capacity_blocks } else { b - 1 })
                .collect(),
            next: (0..nodes)
                .map(|b| if b == capacity_blocks { 0 } else { b + 1 })
                .collect(),
            holders: vec![0; nodes as usize],
            slot: vec![NONE; nodes as usize],
            duplicate: vec![NONE; nodes as usize],
            free: capacity_blocks,
            held: vec![Vec::new(); requests],
            cached: vec![0; requests],
            counts: PoolCounts::default(),
            held_keyed: 0,
            log: None,
            changes: None,
            keys,
        }
    }

    /// Gives its keys away, so that they can grow; until `keep_keys` it can be asked nothing.
    pub fn lend_keys(&mut self) -> Arc<BlockKeys> {
        std::mem::take(&mut self.keys)
    }

    /// Takes keys that name all that its own did, and requests to come; ids are below `ids`.
    pub fn keep_keys(&mut self, keys: Arc<BlockKeys>, ids: u32) {
        let requests = keys.requests() as usize;
        self.held.resize(requests, Vec::new());
        self.cached.resize(requests, 0);
        self.index.know_ids(ids);
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
        self.held[request as usize].len() as u32
    }

    /// Blocks with a key that somebody holds.
    pub fn held_keyed(&self) -> u64 {
        self.held_keyed
    }

    /// How many of a request's leading blocks have been offered their keys.
    pub fn keyed_prefix(&self, request: u32) -> u32 {
        self.cached[request as usize]
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
            let run = run.min(limit - block);
            let missing = (slot..slot + run).position(|s| self.index.first(s) == NONE);
            block += missing.map_or(run, |m| m as u32);
            if missing.is_some() {
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
            let end = slot + run.min(hits - block);
            let is_idle = |&s: &u32| self.holders[self.index.first(s) as usize] == 0;
            idle += (slot..end).filter(is_idle).count() as u32;
            block += end - slot;
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
            .is_some_and(|(slot, _)| self.index.first(slot) != NONE)
    }

    /// Notes that a tier below has lost a key, which is an eviction where the pool does not have it.
    pub fn left_below(&mut self, key: u64) {
        let is_here = self
            .index
            .find(key)
            .is_some_and(|(slot, _)| self.index.first(slot) != NONE);
        if let (Some(log), false) = (&mut self.log, is_here) {
            log.evicted(key, 1);
        }
    }

    /// The slot of a block's key and how many of the request's next blocks have the slots after it.
    fn find(&self, request: u32, block: u32) -> Option<(u32, u32)> {
        let (key, run) = self.keys.run(request, block);
        let (slot, chunk) = self.index.find(key)?;
        Some((slot, run.min(chunk)))
    }

    /// Holds the first `hits` blocks of the request, which must be resident, and takes new ones until it holds
    /// `blocks`; false, and no change, where the free queue is too short. The request holds nothing before.
    pub fn allocate(&mut self, request: u32, hits: u32, blocks: u32) -> bool {
        debug_assert!(self.held[request as usize].is_empty());
        let mut found = std::mem::take(&mut self.held[request as usize]);
        while (found.len() as u32) < hits {
            let (slot, run) = self
                .find(request, found.len() as u32)
                .expect("hits are resident");
            let end = slot + run.min(hits - found.len() as u32);
            found.extend((slot..end).map(|s| self.index.first(s)));
        }
        let idle = found
            .iter()
            .filter(|&&b| self.holders[b as usize] == 0)
            .count() as u32;
        if blocks - hits + idle > self.free {
            found.clear();
            self.held[request as usize] = found;
            return false;
        }
        for &block in &found {
            if self.holders[block as usize] == 0 {
                self.unlink(block);
                self.held_keyed += 1;
            }
            self.holders[block as usize] += 1;
        }
        self.held[request as usize] = found;
        self.cached[request as usize] = hits;
        self.extend(request, blocks)
    }

    /// Takes new blocks until the request holds `blocks`; false, and no change, where they are too few.
    pub fn extend(&mut self, request: u32, blocks: u32) -> bool {
        let missing = blocks.saturating_sub(self.held_blocks(request));
        if missing > self.free {
            return false;
        }
        let mut held = std::mem::take(&mut self.held[request as usize]);
        held.reserve(missing as usize);
        let mut block = self.next[ENDS];
        for _ in 0..missing {
            let after = self.next[block as usize];
            self.holders[block as usize] = 1;
            if self.slot[block as usize] != NONE {
                self.evict(block);
            }
            held.push(block);
            block = after;
        }
        self.next[ENDS] = block;
        self.previous[block as usize] = ENDS as u32;
        self.free -= missing;
        self.counts.taken += u64::from(missing);
        self.held[request as usize] = held;
        true
    }

    /// Gives the request's first `blocks` blocks, all full, their keys where they have none.
    pub fn cache(&mut self, request: u32, blocks: u32) {
        let mut at = self.cached[request as usize];
        if at >= blocks {
            return;
        }
        let held = std::mem::take(&mut self.held[request as usize]);
        while at < blocks {
            let (key, run) = self.keys.run(request, at);
            let (first, chunk) = self.index.open(key);
            let run = run.min(chunk).min(blocks - at);
            for (slot, &block) in (first..first + run).zip(&held[at as usize..]) {
                self.insert(slot, block);
            }
            at += run;
        }
        self.held[request as usize] = held;
        self.cached[request as usize] = blocks;
    }

    /// Lets go of all the request's blocks, last to first: of those without another holder the ones without
    /// a key queue in front, as a group, and the others at the end.
    pub fn release(&mut self, request: u32) {
        let mut held = std::mem::take(&mut self.held[request as usize]);
        self.cached[request as usize] = 0;
        let mut front_end = ENDS as u32;
        while let Some(block) = held.pop() {
            self.holders[block as usize] -= 1;
            if self.holders[block as usize] > 0 {
                continue;
            }
            self.free += 1;
            if self.slot[block as usize] == NONE {
                self.link(front_end, block);
                front_end = block;
            } else {
                self.held_keyed -= 1;
                self.link(self.previous[ENDS], block);
            }
        }
    }

    /// Puts a block behind another in the queue.
    fn link(&mut self, before: u32, block: u32) {
        let after = self.next[before as usize];
        self.previous[block as usize] = before;
        self.next[block as usize] = after;
        self.next[before as usize] = block;
        self.previous[after as usize] = block;
    }

    fn unlink(&mut self, block: u32) {
        let (before, after) = (self.previous[block as usize], self.next[block as usize]);
        self.next[before as usize] = after;
        self.previous[after as usize] = before;
        self.free -= 1;
    }

    fn insert(&mut self, slot: u32, block: u32) {
        self.log_change(true, slot);
        self.slot[block as usize] = slot;
        self.counts.inserted += 1;
        self.held_keyed += 1;
        let mut last = self.index.first(slot);
        if last == NONE {
            self.index.fill(slot, block);
            return;
        }
        while self.duplicate[last as usize] != NONE {
            last = self.duplicate[last as usize];
        }
        self.duplicate[last as usize] = block;
    }

    fn log_change(&mut self, stored: bool, slot: u32) {
        if let Some(changes) = &mut self.changes {
            changes.push((stored, self.index.key(slot)));
        }
    }

    /// Takes the keys of all blocks; false, and no change, while some are held.
    pub fn clear(&mut self) -> bool {
        if (self.free as usize) + 1 < self.holders.len() {
            return false;
        }
        for block in 1..self.slot.len() as u32 {
            if self.slot[block as usize] != NONE {
                self.evict(block);
            }
        }
        true
    }

    fn evict(&mut self, block: u32) {
        let slot = std::mem::replace(&mut self.slot[block as usize], NONE);
        self.log_change(false, slot);
        let heir = std::mem::replace(&mut self.duplicate[block as usize], NONE);
        self.counts.evicted += 1;
        let mut before = self.index.first(slot);
        if before != block {
            while self.duplicate[before as usize] != block {
                before = self.duplicate[before as usize];
            }
            self.duplicate[before as usize] = heir;
        } else if heir != NONE {
            self.index.replace(slot, heir);
        } else {
            if let Some(log) = &mut self.log {
                log.evicted(self.index.key(slot), 1);
            }
            self.index.clear(slot);
        }
    }

    /// Blocks with a key, and distinct keys.
    pub fn cached_blocks(&self) -> (u64, u64) {
        (
            self.slot.iter().filter(|&&s| s != NONE).count() as u64,
            self.index.keys(),
        )
    }

    /// The keys of the free blocks, next to be taken first; `NO_KEY` where there is none.
    pub fn free_queue(&self) -> Vec<u64> {
        let mut keys = Vec::with_capacity(self.free as usize);
        let mut block = self.next[ENDS];
        while block != ENDS as u32 {
            let slot = self.slot[block as usize];
            keys.push(if slot == NONE {
                NO_KEY
            } else {
                self.index.key(slot)
            });
            block = self.next[block as usize];
        }
        keys
    }

    /// Bytes held on the heap, the trace's keys left out.
    pub fn heap_bytes(&self) -> usize {
        let held: usize = self.held.iter().map(|h| 4 * h.capacity()).sum();
        20 * self.next.len() + self.index.heap_bytes() + held + 28 * self.held.len()
    }
}

/// What stands for the key of a block without one.
pub const NO_KEY: u64 = u64::MAX;

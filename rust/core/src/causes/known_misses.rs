//! Replays of eviction policies: known blocks that were missed, and the requests whose demand had evicted them.

use super::eviction_log::{EvictedMiss, EvictionLog};
use crate::ids::NONE;

/// Log of evictions and of the misses that follow; `by` is `NONE` for blocks that were never admitted.
#[derive(Debug)]
pub struct EvictedMisses<'a> {
    /// Leading blocks of each request that were shown before and may hit.
    known: &'a [u32],
    log: EvictionLog,
    misses: Vec<EvictedMiss>,
}

impl<'a> EvictedMisses<'a> {
    /// An empty log; a key is a list of blocks times `list_length` plus the index in the list.
    pub fn new(known: &'a [u32], lists: usize, list_length: u64) -> Self {
        Self {
            known,
            log: EvictionLog::of_lists(lists, list_length),
            misses: Vec::new(),
        }
    }

    /// Sets the request that is being processed.
    pub fn start(&mut self, request: usize) {
        self.log.now = request as u32;
    }

    /// Records that the current request evicted `blocks` keys of one list.
    pub fn evicted(&mut self, key: u64, blocks: u32) {
        self.log.evicted(key, blocks);
    }

    /// Records that the current request misses `blocks` keys of one list, the first at `depth`.
    pub fn missed(&mut self, mut key: u64, depth: u32, blocks: u32) {
        let request = self.log.now;
        let mut left = blocks.min(self.known[request as usize].saturating_sub(depth));
        while left > 0 {
            let (by, blocks) = self.log.by(key, left);
            self.misses.push(EvictedMiss {
                request,
                by: by.unwrap_or(NONE),
                blocks,
            });
            key += u64::from(blocks);
            left -= blocks;
        }
    }

    /// Returns the misses of all requests, in order.
    pub fn into_misses(self) -> Vec<EvictedMiss> {
        self.misses
    }
}

/// Length of a list of keys: keys of blocks of runs are the run and the index in it.
pub const RUN_LENGTH: u64 = 1 << 32;

/// Returns the key of a block of a run.
pub fn run_key(run: u32, slot: u32) -> u64 {
    u64::from(run) * RUN_LENGTH + u64::from(slot)
}

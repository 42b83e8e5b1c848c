//! Replays of eviction policies: which known blocks were missed, and whose demand had evicted them.

use super::eviction_log::{EvictedMiss, EvictionLog};
use crate::ids::NONE;

/// Remembers who evicted what last, and what was missed of it; `by` is `NONE` for what never came in.
#[derive(Debug)]
pub struct EvictedMisses<'a> {
    /// Leading blocks of each request that were shown before and may hit.
    known: &'a [u32],
    log: EvictionLog,
    misses: Vec<EvictedMiss>,
}

impl<'a> EvictedMisses<'a> {
    /// Nothing is evicted; a key is a list of blocks times `list_length` plus the place in the list.
    pub fn new(known: &'a [u32], lists: usize, list_length: u64) -> Self {
        Self {
            known,
            log: EvictionLog::of_lists(lists, list_length),
            misses: Vec::new(),
        }
    }

    /// A request is at work.
    pub fn start(&mut self, request: usize) {
        self.log.now = request as u32;
    }

    /// Note that the request at work evicted `blocks` keys of one list.
    pub fn evicted(&mut self, key: u64, blocks: u32) {
        self.log.evicted(key, blocks);
    }

    /// Note that the request at work misses `blocks` keys of one list, the first of them at `depth`.
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

    /// The misses of all requests, in order.
    pub fn into_misses(self) -> Vec<EvictedMiss> {
        self.misses
    }
}

/// Keys of the blocks of runs: the run, then the place in it.
pub const RUN_LENGTH: u64 = 1 << 32;

/// The key of a block of a run.
pub fn run_key(run: u32, slot: u32) -> u64 {
    u64::from(run) * RUN_LENGTH + u64::from(slot)
}

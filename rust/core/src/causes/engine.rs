//! Replays of real engines' caches: causes of the misses of each look-up.

use std::sync::Arc;

use super::eviction_log::{EvictedMiss, EvictionLog};
use super::prompt::PromptMisses;
use super::{MissCause, TokensByCause};
use crate::keys::BlockKeys;

/// Result of a look-up in an engine's cache.
#[derive(Debug, Clone, Copy)]
pub struct Lookup {
    /// Request that did the look-up.
    pub request: u32,
    /// Tokens of the request's prompt.
    pub input_tokens: u64,
    /// Leading blocks found.
    pub hits: u32,
    /// Leading blocks that can hit at most.
    pub limit: u32,
}

/// Counts missed tokens by cause for each request.
#[derive(Debug)]
pub struct MissCauses {
    keys: Arc<BlockKeys>,
    block_size: u64,
    /// For each id, the number of its leading blocks that requests have shown.
    seen: Vec<u32>,
    /// For each id, true if a request has continued from it to another id.
    continued: Vec<bool>,
    /// Missed tokens by cause for each request.
    pub tokens: Vec<TokensByCause>,
    /// Misses by eviction, in order.
    pub evicted: Vec<EvictedMiss>,
}

impl MissCauses {
    /// Empty counters for all requests of `keys`. Cost: 5 bytes per id and 56 per request.
    pub fn new(keys: Arc<BlockKeys>, block_size: u32) -> Self {
        let ids = keys.distinct_ids() as usize;
        let requests = keys.requests() as usize;
        Self {
            keys,
            block_size: u64::from(block_size),
            seen: vec![0; ids],
            continued: vec![false; ids],
            tokens: vec![TokensByCause::default(); requests],
            evicted: Vec::new(),
        }
    }

    /// Counts the misses of one look-up. `resident` returns true if a block behind a missing block is cached;
    /// it is None for prefix-closed caches, which have no such blocks.
    pub fn count(&mut self, at: Lookup, log: &EvictionLog, resident: Option<&dyn Fn(u32) -> bool>) {
        let mut misses = PromptMisses::after(u64::from(at.hits) * self.block_size);
        let mut before = MissCause::NotAdmitted;
        let mut block = at.hits;
        while block < at.limit {
            let (key, run) = self.keys.run(at.request, block);
            let run = run.min(at.limit - block);
            let known = self.known(key).min(run);
            let (cause, blocks) = if known == 0 {
                let others_continued = || self.others_continued(at.request, block, key);
                (misses.new_block(others_continued), run)
            } else if resident.is_some_and(|is| is(block)) {
                (before, 1)
            } else {
                let step = if resident.is_some() { 1 } else { known };
                let (by, blocks) = log.by(key, step);
                if let Some(by) = by {
                    self.evicted.push(EvictedMiss {
                        request: at.request,
                        by,
                        blocks,
                    });
                    (MissCause::Evicted, blocks)
                } else {
                    (MissCause::NotAdmitted, blocks)
                }
            };
            before = cause;
            block += blocks;
            misses.until(u64::from(block) * self.block_size, cause);
        }
        self.tokens[at.request as usize] = misses.end(at.input_tokens);
    }

    /// Removes the counts of a rejected request, which has neither hits nor misses.
    pub fn forget(&mut self, request: u32) {
        self.tokens[request as usize] = TokensByCause::default();
        while self
            .evicted
            .last()
            .is_some_and(|miss| miss.request == request)
        {
            self.evicted.pop();
        }
    }

    /// Returns the number of keys from `key` on, within its id, that some request has shown.
    fn known(&self, key: u64) -> u32 {
        let per = u64::from(self.keys.blocks_per_id());
        let seen = self.seen.get((key / per) as usize).copied().unwrap_or(0);
        seen.saturating_sub((key % per) as u32)
    }

    /// Returns true if another request diverged after the block before `block`; `key` is the key of `block`.
    fn others_continued(&self, request: u32, block: u32, key: u64) -> bool {
        let per = u64::from(self.keys.blocks_per_id());
        if block == 0 || key / per >= self.seen.len() as u64 || key % per > 0 {
            return false;
        }
        let parent = self.keys.key(request, block - 1) / per;
        self.continued.get(parent as usize) == Some(&true)
    }

    /// Records the first `blocks` blocks of a request as shown.
    pub fn learn(&mut self, request: u32, blocks: u32) {
        let per = u64::from(self.keys.blocks_per_id());
        let mut parent = None;
        let mut block = 0;
        while block < blocks {
            let (key, run) = self.keys.run(request, block);
            let run = run.min(blocks - block);
            let id = (key / per) as usize;
            if id >= self.seen.len() {
                break;
            }
            let slot = (key % per) as u32;
            // A continuation may name the middle of an id whose start was never shown; no look-up reaches that
            // block.
            if slot <= self.seen[id] {
                self.seen[id] = self.seen[id].max(slot + run);
            }
            if let Some(parent) = parent.replace(id) {
                self.continued[parent] |= parent != id;
            }
            block += run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missed_block_has_one_cause() {
        let keys = BlockKeys::of_rows(2, &[&[0, 1][..], &[0, 2], &[0, 1, 3]]);
        let mut log = EvictionLog::new(&keys);
        let mut causes = MissCauses::new(keys, 16);
        let hit_causes = |never_seen, diverged, evicted, shorter| {
            [never_seen, diverged, evicted, shorter, 0, 0, 0, 0, 0, 0, 0]
        };
        let look = |request, input_tokens, hits, limit| Lookup {
            request,
            input_tokens,
            hits,
            limit,
        };
        causes.count(look(0, 64, 0, 3), &log, None);
        causes.learn(0, 4);
        causes.count(look(1, 64, 2, 3), &log, None);
        causes.learn(1, 4);
        log.now = 1;
        log.evicted(3, 1);
        log.evicted(2, 1);
        causes.count(look(2, 96, 2, 5), &log, None);
        assert_eq!(causes.tokens[0], hit_causes(48, 0, 0, 16));
        assert_eq!(causes.tokens[1], hit_causes(0, 16, 0, 16));
        assert_eq!(causes.tokens[2], hit_causes(16, 0, 32, 16));
        assert_eq!(
            causes.evicted,
            [EvictedMiss {
                request: 2,
                by: 1,
                blocks: 2
            }]
        );
    }
}

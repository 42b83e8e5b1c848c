//! Why a block of a prompt was missed: each under one cause, so the causes sum to the misses.

use std::sync::Arc;

use crate::keys::BlockKeys;

/// No prompt showed the block before, and the prompt is new from here on or goes on where one ended.
pub const NEVER_SEEN: usize = 0;
/// No prompt showed the block before, and others went on differently after the same blocks.
pub const DIVERGED: usize = 1;
/// It was in the cache and was evicted, or lies behind a block that was.
pub const EVICTED: usize = 2;
/// The end of the prompt, which fills no block that may hit: the last token is always computed.
pub const SHORTER: usize = 3;
/// A prompt showed it before, but the cache did not take it.
pub const NOT_ADMITTED: usize = 4;
/// How many causes there are.
pub const CAUSES: usize = 5;

/// Places of an id evicted by the same request.
#[derive(Debug, Clone, Copy)]
struct Gone {
    from: u32,
    to: u32,
    by: u32,
}

/// Which request's demand evicted each block last: ranges, by id.
#[derive(Debug)]
pub struct EvictionLog {
    blocks_per_id: u64,
    gone: Vec<Vec<Gone>>,
    /// The request at work.
    pub now: u32,
}

impl EvictionLog {
    /// An empty log of the ids of `keys`.
    pub fn new(keys: &BlockKeys) -> Self {
        Self::of_lists(
            keys.distinct_ids() as usize,
            u64::from(keys.blocks_per_id()),
        )
    }

    /// An empty log of lists of so many keys, numbered one list after another.
    pub fn of_lists(lists: usize, length: u64) -> Self {
        Self {
            blocks_per_id: length,
            gone: vec![Vec::new(); lists],
            now: 0,
        }
    }

    /// Notes the eviction of `key` and the `blocks - 1` keys after it, all of one id; private keys, which
    /// nobody asks for again, are passed over.
    pub fn evicted(&mut self, key: u64, blocks: u32) {
        let Some(list) = self.gone.get_mut((key / self.blocks_per_id) as usize) else {
            return;
        };
        let from = (key % self.blocks_per_id) as u32;
        let to = from + blocks;
        let by = self.now;
        let touches = |old: &Gone| old.by == by && old.from <= to && from <= old.to;
        if let Some(growing) = list.iter().position(touches) {
            for (at, old) in list.iter_mut().enumerate() {
                if at == growing {
                    (old.from, old.to) = (old.from.min(from), old.to.max(to));
                } else if old.from < from {
                    old.to = old.to.min(from);
                } else {
                    old.from = old.from.max(to);
                }
            }
            list.retain(|old| old.from < old.to);
            return;
        }
        let mut kept = Vec::with_capacity(list.len() + 2);
        for &old in list.iter() {
            let (before, after) = (old.to.min(from), old.from.max(to));
            if old.from < before {
                kept.push(Gone { to: before, ..old });
            }
            if after < old.to {
                kept.push(Gone { from: after, ..old });
            }
        }
        kept.push(Gone { from, to, by });
        *list = kept;
    }

    /// The request that evicted `key` last, and for how many keys from there on, at most `limit`, that holds.
    pub fn by(&self, key: u64, limit: u32) -> (Option<u32>, u32) {
        let list = self.gone.get((key / self.blocks_per_id) as usize);
        let place = (key % self.blocks_per_id) as u32;
        let mut run = limit;
        for gone in list.into_iter().flatten() {
            if gone.from <= place && place < gone.to {
                return (Some(gone.by), limit.min(gone.to - place));
            }
            if place < gone.from {
                run = run.min(gone.from - place);
            }
        }
        (None, run)
    }
}

/// Blocks that a request missed because another request's demand had evicted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictedMiss {
    /// Who missed them.
    pub request: u32,
    /// Whose demand had evicted them.
    pub by: u32,
    /// How many.
    pub blocks: u32,
}

/// What a look-up found, and why it found no more.
#[derive(Debug, Clone, Copy)]
pub struct Lookup {
    /// The request that looked.
    pub request: u32,
    /// Tokens of its prompt.
    pub input_tokens: u64,
    /// Leading blocks found.
    pub hits: u32,
    /// Leading blocks that could be found.
    pub limit: u32,
}

/// Counts misses by cause, in tokens, for each request.
#[derive(Debug)]
pub struct MissCauses {
    keys: Arc<BlockKeys>,
    block_size: u64,
    /// Leading places of each id that a request has shown.
    seen: Vec<u32>,
    /// Whether a request has gone on from the id to another.
    went_on: Vec<bool>,
    /// Tokens by cause, for each request.
    pub tokens: Vec<[u64; CAUSES]>,
    /// The misses by eviction, in order.
    pub evicted: Vec<EvictedMiss>,
}

impl MissCauses {
    /// Nothing seen, nothing missed. Cost: 5 bytes an id and 40 a request.
    pub fn new(keys: Arc<BlockKeys>, block_size: u32) -> Self {
        let ids = keys.distinct_ids() as usize;
        let requests = keys.requests() as usize;
        Self {
            keys,
            block_size: u64::from(block_size),
            seen: vec![0; ids],
            went_on: vec![false; ids],
            tokens: vec![[0; CAUSES]; requests],
            evicted: Vec::new(),
        }
    }

    /// Counts the misses of one look-up. `resident` tells of single blocks behind a missing one; None where
    /// the cache is prefix-closed, so that nothing is.
    pub fn count(&mut self, at: Lookup, log: &EvictionLog, resident: Option<&dyn Fn(u32) -> bool>) {
        let mut counts = [0; CAUSES];
        counts[SHORTER] = at.input_tokens - u64::from(at.limit) * self.block_size;
        let mut unseen = None;
        let mut before = NOT_ADMITTED;
        let mut block = at.hits;
        while block < at.limit {
            let (key, run) = self.keys.run(at.request, block);
            let run = run.min(at.limit - block);
            let known = self.known(key).min(run);
            let (cause, blocks) = if known == 0 {
                (
                    *unseen.get_or_insert_with(|| self.novelty(at.request, block, key)),
                    run,
                )
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
                }
                (if by.is_some() { EVICTED } else { NOT_ADMITTED }, blocks)
            };
            before = cause;
            counts[cause] += u64::from(blocks) * self.block_size;
            block += blocks;
        }
        self.tokens[at.request as usize] = counts;
    }

    /// Takes the counts of a request back: it was rejected, so it neither hit nor missed.
    pub fn forget(&mut self, request: u32) {
        self.tokens[request as usize] = [0; CAUSES];
        while self
            .evicted
            .last()
            .is_some_and(|miss| miss.request == request)
        {
            self.evicted.pop();
        }
    }

    /// How many keys from `key` on, within its id, some request has shown.
    fn known(&self, key: u64) -> u32 {
        let per = u64::from(self.keys.blocks_per_id());
        let seen = self.seen.get((key / per) as usize).copied().unwrap_or(0);
        seen.saturating_sub((key % per) as u32)
    }

    /// The cause of the first block that no request has shown.
    fn novelty(&self, request: u32, block: u32, key: u64) -> usize {
        let per = u64::from(self.keys.blocks_per_id());
        if block == 0 || key / per >= self.seen.len() as u64 || key % per > 0 {
            return NEVER_SEEN;
        }
        let parent = self.keys.key(request, block - 1) / per;
        if self.went_on.get(parent as usize) == Some(&true) {
            DIVERGED
        } else {
            NEVER_SEEN
        }
    }

    /// Takes notice of the first `blocks` blocks of a request.
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
            let place = (key % per) as u32;
            // a continuation may name the middle of an id whose start was never shown: nobody reaches it
            if place <= self.seen[id] {
                self.seen[id] = self.seen[id].max(place + run);
            }
            if let Some(parent) = parent.replace(id) {
                self.went_on[parent] |= parent != id;
            }
            block += run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::NO_REQUEST;

    fn prompts(rows: &[&[u32]]) -> Arc<BlockKeys> {
        let mut offsets = vec![0];
        rows.iter()
            .for_each(|row| offsets.push(offsets.last().unwrap() + row.len() as u64));
        let full = rows.iter().map(|row| 2 * row.len() as u32).collect();
        Arc::new(
            BlockKeys::new(
                offsets,
                rows.concat(),
                2,
                full,
                vec![NO_REQUEST; rows.len()],
            )
            .unwrap(),
        )
    }

    #[test]
    fn every_missed_block_has_one_cause() {
        let keys = prompts(&[&[0, 1], &[0, 2], &[0, 1, 3]]);
        let mut log = EvictionLog::new(&keys);
        let mut causes = MissCauses::new(keys, 16);
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
        assert_eq!(causes.tokens[0], [48, 0, 0, 16, 0]);
        assert_eq!(causes.tokens[1], [0, 16, 0, 16, 0]);
        assert_eq!(causes.tokens[2], [16, 0, 32, 16, 0]);
        assert_eq!(
            causes.evicted,
            [EvictedMiss {
                request: 2,
                by: 1,
                blocks: 2
            }]
        );
    }

    #[test]
    fn ranges_remember_what_single_places_would() {
        let keys =
            Arc::new(BlockKeys::new(vec![0, 1], vec![0], 16, vec![16], vec![NO_REQUEST]).unwrap());
        let mut log = EvictionLog::new(&keys);
        let mut places = [None; 16];
        let mut x = 1_u64;
        for step in 0..4000 {
            x = x * 48271 % 2_147_483_647;
            let from = (x % 16) as u32;
            let to = from + 1 + (x / 16 % u64::from(16 - from)) as u32;
            log.now = step / 3;
            log.evicted(u64::from(from), to - from);
            places[from as usize..to as usize].fill(Some(step / 3));
            for (place, &by) in places.iter().enumerate() {
                let (told, run) = log.by(place as u64, 16 - place as u32);
                assert_eq!(told, by);
                assert!(places[place..place + run as usize].iter().all(|&b| b == by));
            }
        }
    }

    #[test]
    fn the_latest_eviction_of_a_place_counts() {
        let mut log = EvictionLog::new(&prompts(&[&[0, 1]]));
        log.evicted(0, 2);
        log.now = 5;
        log.evicted(1, 1);
        assert_eq!(log.by(0, 9), (Some(0), 1));
        assert_eq!(log.by(1, 9), (Some(5), 1));
        assert_eq!(log.by(2, 2), (None, 2));
    }
}

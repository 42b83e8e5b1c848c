//! Log of the request whose demand last evicted each block.

use crate::keys::BlockKeys;

/// Keys of one id that the same request evicted.
#[derive(Debug, Clone, Copy)]
struct Gone {
    from: u32,
    to: u32,
    by: u32,
}

/// Request whose demand last evicted each block, stored as ranges by id.
#[derive(Debug)]
pub struct EvictionLog {
    blocks_per_id: u64,
    gone: Vec<Vec<Gone>>,
    /// Request that is being processed.
    pub now: u32,
}

impl EvictionLog {
    /// An empty log for the ids of `keys`.
    pub fn new(keys: &BlockKeys) -> Self {
        Self::of_lists(
            keys.distinct_ids() as usize,
            u64::from(keys.blocks_per_id()),
        )
    }

    /// An empty log for lists of `length` keys each, numbered one list after another.
    pub fn of_lists(lists: usize, length: u64) -> Self {
        Self {
            blocks_per_id: length,
            gone: vec![Vec::new(); lists],
            now: 0,
        }
    }

    /// Records the eviction of `key` and the `blocks - 1` keys after it, all of one id. Private keys are
    /// skipped, since no other request looks them up.
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

    /// Returns the request that evicted `key` last, and the number of keys from `key` on, at most `limit`, with
    /// the same answer.
    pub fn by(&self, key: u64, limit: u32) -> (Option<u32>, u32) {
        let list = self.gone.get((key / self.blocks_per_id) as usize);
        let slot = (key % self.blocks_per_id) as u32;
        let mut run = limit;
        for gone in list.into_iter().flatten() {
            if gone.from <= slot && slot < gone.to {
                return (Some(gone.by), limit.min(gone.to - slot));
            }
            if slot < gone.from {
                run = run.min(gone.from - slot);
            }
        }
        (None, run)
    }
}

/// Blocks that a request missed because another request's demand had evicted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictedMiss {
    /// Request that missed the blocks.
    pub request: u32,
    /// Request whose demand had evicted the blocks.
    pub by: u32,
    /// Number of blocks.
    pub blocks: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_keys_log_the_same() {
        let keys = BlockKeys::of_rows(16, &[[0]]);
        let mut log = EvictionLog::new(&keys);
        let mut slots = [None; 16];
        let mut x = 1_u64;
        for step in 0..4000 {
            x = x * 48271 % 2_147_483_647;
            let from = (x % 16) as u32;
            let to = from + 1 + (x / 16 % u64::from(16 - from)) as u32;
            log.now = step / 3;
            log.evicted(u64::from(from), to - from);
            slots[from as usize..to as usize].fill(Some(step / 3));
            for (slot, &by) in slots.iter().enumerate() {
                let (reported, run) = log.by(slot as u64, 16 - slot as u32);
                assert_eq!(reported, by);
                assert!(slots[slot..slot + run as usize].iter().all(|&b| b == by));
            }
        }
    }

    #[test]
    fn the_latest_eviction_of_a_key_counts() {
        let mut log = EvictionLog::of_lists(2, 2);
        log.evicted(0, 2);
        log.now = 5;
        log.evicted(1, 1);
        assert_eq!(log.by(0, 9), (Some(0), 1));
        assert_eq!(log.by(1, 9), (Some(5), 1));
        assert_eq!(log.by(2, 2), (None, 2));
    }
}

//! Look-up of a prompt in the tier, behind the pool's joint hit (`OffloadingConnectorScheduler`).

use super::to_offer::GroupSlot;
use super::GroupTier;
use crate::convert::fit;
use crate::engines::groups::manager::GroupManager;
use crate::engines::groups::{Group, Kind};

/// Returns the consecutive chunks of so many blocks that a group needs before a hit's end in the tier
/// (`get_sliding_window_size_in_chunks`); `None` for full attention, which needs all.
fn edge_chunks(group: &Group, chunk_blocks: u32) -> Option<u32> {
    match group.kind {
        Kind::Full => None,
        Kind::Sliding(reach) | Kind::Chunked(reach) => {
            Some(group.blocks(reach).div_ceil(chunk_blocks))
        }
        Kind::Linear => Some(1),
    }
}

/// The chunks that a cache group needs before a hit's end; `None`: all.
#[derive(Clone, Copy)]
struct GroupNeed {
    number: usize,
    need: Option<u32>,
}

impl GroupTier {
    /// Returns the tokens of a prompt that can be loaded or are in the pool's joint hit of `in_pool` tokens, at most
    /// `limit`.
    pub(super) fn reached(
        &self,
        manager: &GroupManager,
        request: u32,
        in_pool: u64,
        limit: u64,
    ) -> u64 {
        let mut hit = limit;
        // Full attention first, then the largest need: each shortens the hit until all groups agree.
        let mut groups: Vec<(usize, Option<u32>)> = manager
            .groups()
            .iter()
            .map(|group| edge_chunks(group, self.chunks.blocks))
            .enumerate()
            .collect();
        groups.sort_by_key(|&(_, need)| std::cmp::Reverse(need.unwrap_or(u32::MAX)));
        loop {
            let before = hit;
            for &(number, need) in &groups {
                hit = self.of_group(manager, request, GroupNeed { number, need }, in_pool, hit);
                let chunk = manager.groups()[number].block_size * u64::from(self.chunks.blocks);
                if hit < in_pool + chunk {
                    return in_pool;
                }
            }
            if hit == before {
                return hit;
            }
        }
    }

    /// Returns the end of the last run of enough chunks of a group that ends at an aligned position, at most at
    /// `limit`. A run that begins at the pool's hit is long enough.
    fn of_group(
        &self,
        manager: &GroupManager,
        request: u32,
        of: GroupNeed,
        in_pool: u64,
        limit: u64,
    ) -> u64 {
        let GroupNeed { number, need } = of;
        let (group, align) = (&manager.groups()[number], manager.align());
        let per = self.chunks.blocks;
        let has = |chunk| {
            let key = self.chunk_key(manager, request, GroupSlot::new(number, chunk * per));
            self.tier.contains(key)
        };
        let (start, mut end) = (group.whole(in_pool) / per, group.whole(limit) / per);
        let tokens = |chunks: u32| u64::from(chunks * per) * group.block_size;
        let Some(need) = need else {
            let run = (start..end).find(|&chunk| !has(chunk)).unwrap_or(end);
            return tokens(run) / align * align;
        };
        while end > start {
            let run = match tokens(end) % align {
                0 => (start..end)
                    .rev()
                    .take_while(|&chunk| has(chunk))
                    .take(need as usize)
                    .count(),
                _ => 0,
            };
            let run = fit::<u32>(run);
            if run == need || end - run == start {
                return tokens(end);
            }
            end -= run.max(1);
        }
        in_pool
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::presence::key_of;
    use super::super::GroupWrites;
    use super::*;
    use crate::engines::groups::rules::needed_blocks;
    use crate::engines::groups::{Limits, Reuse};
    use crate::engines::offload_lru::OffloadLru;
    use crate::engines::offload_tier::OffloadTier;
    use crate::engines::tier_chunks::{TierBlocks, TierChunks};
    use crate::engines::used_tier::UsedTier;
    use crate::keys::{BlockKeys, NO_REQUEST};

    const CAPACITY: TierBlocks = TierBlocks { cpu: 8, disk: 0 };

    /// Full attention and a group of a kind, in blocks of 4, over a prompt of three blocks.
    fn manager(kind: Kind) -> GroupManager {
        let keys = BlockKeys::new(vec![0, 3], vec![0, 1, 2], 1, vec![3], vec![NO_REQUEST]);
        let keys = Arc::new(keys.unwrap());
        let group = |kind| Group {
            kind,
            block_size: 4,
            keys: keys.clone(),
            units: 1,
        };
        let limits = Limits {
            max_num_batched_tokens: 64,
            retention_interval: None,
            max_model_len: 64,
            reuse: Reuse::Engine,
        };
        GroupManager::new(vec![group(Kind::Full), group(kind)], 4, limits, 8)
    }

    /// Tokens that are reached with all blocks of full attention and some of the other group in the tier.
    fn reached(kind: Kind, blocks: &[u32], in_pool: u64) -> u64 {
        let manager = manager(kind);
        let full = (0..3).map(|block| key_of(&manager, 0, 0, block));
        let other = blocks.iter().map(|&block| key_of(&manager, 1, 0, block));
        let keys: Vec<u64> = full.chain(other).collect();
        let tier = OffloadTier::new(Box::<OffloadLru>::default(), 8, 0);
        let mut tier = UsedTier::new(tier, 8, 1);
        tier.put(&keys);
        let chunks = TierChunks::new(1, CAPACITY);
        let tier = GroupTier::new(tier, chunks, GroupWrites::Engine, 8, vec![13]);
        tier.reached(&manager, 0, in_pool, 12)
    }

    #[test]
    fn a_move_of_other_blocks_than_its_groups_count_is_found() {
        let tier = OffloadTier::new(Box::<OffloadLru>::default(), 8, 0);
        let (tier, chunks) = (UsedTier::new(tier, 8, 1), TierChunks::new(1, CAPACITY));
        let mut tier = GroupTier::new(tier, chunks, GroupWrites::Engine, 8, vec![13]);
        assert_eq!(tier.check(&[0; 8]), Ok(()));
        tier.by_group.insert(3, vec![1, 1]);
        assert!(tier.check(&[0; 8]).unwrap_err().starts_with("I9"));
    }

    #[test]
    fn a_chunk_needs_all_its_blocks_wherever_the_hit_ends_in_it() {
        let chunk = Kind::Chunked(8);
        assert_eq!(
            reached(chunk, &[2], 0),
            0,
            "12 lies in the middle of the second chunk"
        );
        assert_eq!(reached(chunk, &[1, 2], 0), 12);
        assert_eq!(
            reached(chunk, &[0, 2], 0),
            4,
            "a run from the first block on"
        );
        assert_eq!(reached(chunk, &[2], 8), 12, "a run from the pool's hit on");
    }

    #[test]
    fn a_window_needs_a_block_more_than_in_the_pool_where_one_token_is_left_over() {
        for (window, in_pool, in_tier) in [(4, 1, 1), (5, 1, 2), (6, 2, 2), (9, 2, 3)] {
            let manager = manager(Kind::Sliding(window));
            let group = &manager.groups()[1];
            assert_eq!(
                (needed_blocks(group), edge_chunks(group, 1)),
                (in_pool, Some(in_tier))
            );
        }
        assert_eq!(reached(Kind::Sliding(5), &[2], 0), 0);
        assert_eq!(reached(Kind::Sliding(5), &[1, 2], 0), 12);
        assert_eq!(reached(Kind::Linear, &[1], 0), 8);
    }
}

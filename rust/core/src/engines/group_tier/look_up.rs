//! Look-up of a prompt in the tier, behind the pool's joint hit (`OffloadingConnectorScheduler`).

use std::ops::Range;

use super::presence::InBoth;
use super::to_offer::GroupSlot;
use super::{FoundBelow, GroupTier, GroupWrites};
use crate::convert::fit;
use crate::engines::groups::manager::GroupManager;
use crate::engines::groups::{Group, Kind};
use crate::store::NO_MOVE;

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

/// Returns the chunks that a group needs before a hit of `tokens` tokens: a window also the chunk that it leaves, where
/// the hit ends in the middle of one (`load_window_size_in_chunks`).
fn chunks_before(group: &Group, need: u32, tokens: u64, chunk_blocks: u32) -> u32 {
    let Kind::Sliding(window) = group.kind else {
        return need;
    };
    let chunk = group.block_size * u64::from(chunk_blocks);
    let padding = tokens.next_multiple_of(chunk) - tokens;
    need.max(fit::<u32>((window - 1 + padding).div_ceil(chunk)))
}

/// A request's tokens for a look-up.
#[derive(Debug, Clone, Copy)]
pub struct Prefix {
    /// The request.
    pub request: u32,
    /// Tokens of the pool's joint hit.
    pub in_pool: u64,
    /// Tokens whose blocks have keys.
    pub known: u64,
    /// Most tokens of a hit.
    pub most: u64,
}

/// Presence of a chunk in the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// It is not there.
    Absent,
    /// It is being written.
    Arrives,
    /// It can be loaded.
    Ready,
}

/// Chunks of a group from the pool's hit on.
struct Chunks<'a> {
    range: Range<u32>,
    state: &'a dyn Fn(u32) -> ChunkState,
}

impl Chunks<'_> {
    /// Returns the number of leading chunks that are there; `None` if one of them is being written.
    fn prefix(self) -> Option<u32> {
        let (start, end) = (self.range.start, self.range.end);
        let there = self
            .range
            .take_while(|&at| (self.state)(at) != ChunkState::Absent);
        let count = fit::<u32>(there.count());
        let mut found = start..(start + count).min(end);
        let arrives = found.any(|at| (self.state)(at) == ChunkState::Arrives);
        (!arrives).then_some(count)
    }

    /// Returns the end of the last run of `need` chunks that are there, counted from the range's start; of a shorter one
    /// that begins at the start. The run that ends the range must have `first` chunks.
    fn window(self, need: u32, first: u32) -> Option<u32> {
        let (mut run, mut needed, mut arrives) = (0, first, false);
        for at in self.range.clone().rev() {
            match (self.state)(at) {
                ChunkState::Absent => (run, needed, arrives) = (0, need, false),
                ChunkState::Arrives => (run, arrives) = (run + 1, true),
                ChunkState::Ready => run += 1,
            }
            if run == needed {
                return (!arrives).then_some(at - self.range.start + needed);
            }
        }
        (!arrives).then_some(run)
    }
}

impl GroupTier {
    /// Returns the state of a chunk.
    pub(super) fn state_of(&self, key: u64) -> ChunkState {
        match self.tier.contains(key) {
            true => ChunkState::Ready,
            false => ChunkState::Absent,
        }
    }

    /// Looks up a request of at most `limit` tokens. No change.
    pub fn look_up(&self, manager: &GroupManager, request: u32, limit: u64) -> FoundBelow {
        if self.writes != GroupWrites::Engine {
            let in_both = InBoth {
                manager,
                tier: &self.tier,
                request,
            };
            let found = manager.lookup_in(in_both).find(limit);
            let pool_tokens = manager.look_up(request, found.tokens).tokens;
            return FoundBelow { found, pool_tokens };
        }
        let in_pool = manager.look_up(request, limit);
        let mut found = in_pool;
        let prefix = Prefix {
            request,
            in_pool: in_pool.tokens,
            known: limit,
            most: limit,
        };
        found.tokens = self
            .reached(manager, prefix, &|key| self.state_of(key))
            .unwrap_or(in_pool.tokens);
        FoundBelow {
            found,
            pool_tokens: in_pool.tokens,
        }
    }

    /// Looks up a request for vLLM's own scheduler, which may ask again; `None`: found chunks are being copied.
    pub fn reached_in_time(
        &self,
        manager: &GroupManager,
        request: u32,
        in_pool: u64,
        known: u64,
    ) -> Option<u64> {
        let groups = manager.groups();
        let has_windows = groups.iter().any(|group| group.kind != Kind::Full);
        let state = groups.iter().find(|group| group.kind == Kind::Linear);
        let unit = state.map_or(1, |group| group.block_size * u64::from(self.chunks.blocks));
        let most = (known - u64::from(has_windows)) / unit * unit;
        let prefix = Prefix {
            request,
            in_pool,
            known,
            most,
        };
        let state = |key| match self.copies.written_by(key) {
            NO_MOVE => self.state_of(key),
            _ => ChunkState::Arrives,
        };
        let hit = self.reached(manager, prefix, &state)?;
        let loading = &self.connector.jobs.loading;
        let is_loading = hit > in_pool
            && (0..groups.len()).any(|number| {
                let mut read = self.read_by(manager, number, in_pool, hit);
                read.any(|chunk| loading.contains(self.key_at(manager, request, number, chunk)))
            });
        (!is_loading).then_some(hit)
    }

    /// Returns the chunks that a group reads for a hit behind that of the pool.
    fn read_by(&self, manager: &GroupManager, number: usize, in_pool: u64, hit: u64) -> Range<u32> {
        let (group, per) = (&manager.groups()[number], self.chunks.blocks);
        let (start, end) = (group.whole(in_pool) / per, group.blocks(hit).div_ceil(per));
        match edge_chunks(group, per) {
            None => start..end,
            Some(need) => start.max(end.saturating_sub(chunks_before(group, need, hit, per)))..end,
        }
    }

    fn key_at(&self, manager: &GroupManager, request: u32, number: usize, chunk: u32) -> u64 {
        let slot = GroupSlot::new(number, chunk * self.chunks.blocks);
        self.chunk_key(manager, request, slot)
    }

    /// Returns the tokens that can be loaded or are in the pool's joint hit (`_lookup_complete_chunks`); `None` if that
    /// depends on chunks that are being written.
    pub(super) fn reached(
        &self,
        manager: &GroupManager,
        Prefix {
            request,
            in_pool,
            known,
            most,
        }: Prefix,
        state: &dyn Fn(u64) -> ChunkState,
    ) -> Option<u64> {
        let per = self.chunks.blocks;
        let needs: Vec<Option<u32>> = manager
            .groups()
            .iter()
            .map(|group| edge_chunks(group, per))
            .collect();
        // full attention first, then the largest need
        let mut all: Vec<usize> = (0..needs.len()).collect();
        all.sort_by_key(|&number| std::cmp::Reverse(needs[number].unwrap_or(u32::MAX)));
        let windows: Vec<usize> = all
            .iter()
            .copied()
            .filter(|&number| needs[number].is_some())
            .collect();
        let (mut most, mut hit, mut waits) = (most, 0, false);
        let mut again = all.clone();
        while !again.is_empty() {
            let mut had_window = false;
            for number in std::mem::take(&mut again) {
                let group = &manager.groups()[number];
                let chunk = group.block_size * u64::from(per);
                most = most.min(known / chunk * chunk);
                if most < in_pool + chunk {
                    return Some(in_pool);
                }
                let start = fit::<u32>(in_pool / chunk);
                let key = |at| self.key_at(manager, request, number, at);
                let chunks = Chunks {
                    range: start..fit::<u32>(most.div_ceil(chunk)),
                    state: &|at| state(key(at)),
                };
                let found = match needs[number] {
                    None => chunks.prefix(),
                    Some(need) => chunks.window(need, chunks_before(group, need, most, per)),
                };
                match found {
                    None => waits = true,
                    Some(found) => most = most.min(chunk * u64::from(start + found)),
                }
                if found == Some(0) || most < in_pool + chunk {
                    return Some(in_pool);
                }
                if most - in_pool < hit {
                    if std::mem::take(&mut waits) {
                        again.clone_from(&all);
                    } else if had_window && again.is_empty() {
                        again.clone_from(&windows);
                    }
                }
                had_window |= needs[number].is_some();
                hit = most - in_pool;
            }
        }
        (!waits).then_some(in_pool + hit)
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
        let prefix = Prefix {
            request: 0,
            in_pool,
            known: 12,
            most: 12,
        };
        tier.reached(&manager, prefix, &|key| tier.state_of(key))
            .unwrap()
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

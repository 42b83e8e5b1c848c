//! The blocks that vLLM's scheduler allocates (`KVCacheManager`): of one cache group, or of several.

use super::sequence::Sequence;
use super::VllmConfig;
use crate::convert::fit;
use crate::engines::group_store::GroupStore;
use crate::engines::pool_store::PoolStore;
use crate::store::connector::Connector;
use crate::store::contract::{BatchStore, BlockStore, GroupAdmission};
use crate::store::newcomer::{Entry, Newcomer};
use crate::store::{Answer, LeaseBlocks};

/// Action of a running request at a boundary of a step run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// It allocates a block.
    TakesBlock,
    /// It fills a block.
    FillsBlock,
    /// It takes any of the actions of a step.
    Changes,
}

/// An action at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnAt {
    pub boundary: u64,
    pub turn: Turn,
}

/// The step of a request whose load has ended.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    /// Tokens that it needs blocks for.
    pub end: u64,
    /// Free blocks that it must leave.
    pub kept_blocks: u64,
    pub now_ns: u64,
}

/// A pool of blocks under vLLM's rules. Boundaries are counted from the start of a step run, from 1 on.
pub trait Blocks: BlockStore {
    /// Notifies the pool that another step is composed.
    fn begin_step(&mut self) {}

    /// The connector to the tiers below, if there are any.
    fn connector(&mut self) -> Option<&mut dyn Connector> {
        None
    }

    /// Free blocks, of a pool above tiers.
    fn free_blocks(&self) -> u64 {
        self.spare_blocks()
    }

    /// True if no copy is in flight, and none is decided at the end of the next step of a running request.
    fn is_quiet(&self, _running: &Sequence) -> bool {
        true
    }

    /// True if requests have ended whose last copies are to be decided, or stores that the engine waits for.
    fn has_ended(&self) -> bool {
        false
    }

    /// True if the next step may decide copies, though nothing else has changed.
    fn has_more(&self) -> bool {
        false
    }

    /// Admits a waiting request with its cached prefix, or changes nothing.
    fn admit(&mut self, asked: &Newcomer, config: &VllmConfig, now_ns: u64) -> Answer<Entry>;

    /// True if there are enough free blocks for a request whose load has ended.
    fn fits_loaded(&self, s: &Sequence, asked: Resumed, config: &VllmConfig) -> bool {
        let last = if config.reserve_full_isl {
            s.known
        } else {
            asked.end
        };
        let lacking = config.blocks(last).saturating_sub(s.held.blocks);
        lacking + asked.kept_blocks <= self.free_blocks()
    }

    /// Allocates blocks for a request whose load has ended; false if there are too few free blocks.
    fn admit_loaded(
        &mut self,
        s: &mut Sequence,
        asked: Resumed,
        config: &VllmConfig,
    ) -> Answer<bool> {
        Ok(self.fits_loaded(s, asked, config) && self.grow(s, asked.end, config, asked.now_ns)?)
    }

    /// Blocks that a prompt at work, or whose load runs, still needs.
    fn claim(&self, s: &Sequence, config: &VllmConfig) -> u64 {
        config.blocks(s.known).saturating_sub(s.held.blocks)
    }

    /// Allocates blocks for a running request up to `end` tokens; false if there are too few free blocks.
    fn grow(
        &mut self,
        s: &mut Sequence,
        end: u64,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<bool>;

    /// Upper bound on the blocks that a request allocates for `tokens` further tokens.
    fn growth(&self, s: &Sequence, tokens: u64, config: &VllmConfig) -> Answer<u64>;

    /// Boundaries before the first one at which an action of a request may help another request that was refused.
    fn before_news(&self, s: &Sequence, config: &VllmConfig) -> u64;

    /// First actions of a request in a step run, and their boundaries.
    fn turns(&self, s: &Sequence, config: &VllmConfig) -> Vec<TurnAt>;

    /// Takes an action of a request at a boundary; returns the boundary of the next one.
    fn take_turn(
        &mut self,
        s: &mut Sequence,
        at: TurnAt,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<u64>;
}

impl Blocks for PoolStore {
    fn admit(&mut self, asked: &Newcomer, config: &VllmConfig, now_ns: u64) -> Answer<Entry> {
        let hits = self.pool.peek(asked.request, asked.matchable_blocks);
        let cached = u64::from(hits) * config.block_size_tokens;
        if cached < asked.least_cached_tokens && !asked.is_handed_over {
            return Ok(Entry::NotYet);
        }
        let end = match asked.is_handed_over {
            true => asked.known_tokens,
            false => asked.known_tokens.min(cached + asked.step_tokens),
        };
        let idle = u64::from(self.pool.idle_hits(asked.request, hits));
        let spare = self.spare_blocks() + u64::from(hits);
        let spare = spare.saturating_sub(idle + asked.kept_blocks);
        let blocks = config.blocks(end);
        let claimed = asked.claimed_blocks * u64::from(asked.is_handed_over);
        if blocks + claimed > spare || (asked.whole && config.blocks(asked.known_tokens) > spare) {
            return Ok(Entry::NoCapacity);
        }
        let lease = self.acquire(asked.request, hits)?;
        let lacking = LeaseBlocks::new(lease, blocks - u64::from(hits));
        self.reserve(&[lacking], now_ns)?;
        if asked.is_handed_over {
            return Ok(Entry::Loads {
                lease,
                hit_tokens: end,
                in_pool_blocks: hits,
            });
        }
        Ok(Entry::Admitted {
            lease,
            hit_blocks: hits,
            reserved_tokens: end,
        })
    }

    fn grow(
        &mut self,
        s: &mut Sequence,
        end: u64,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<bool> {
        let free = self.spare_blocks();
        Ok(grow_by_blocks(self, s, config.blocks(end), free, now_ns)?.is_some())
    }

    fn growth(&self, s: &Sequence, tokens: u64, config: &VllmConfig) -> Answer<u64> {
        Ok(growth_in_blocks(s, tokens, config))
    }

    /// The refused request may wait for a block that fills, if other requests can have its key.
    fn before_news(&self, s: &Sequence, config: &VllmConfig) -> u64 {
        let prompt_blocks = fit::<u32>(s.prompt / config.block_size_tokens);
        if self.pool.answers_are_shared(s.request, prompt_blocks) {
            first_fill(s, config) - 1
        } else {
            u64::MAX
        }
    }

    fn turns(&self, s: &Sequence, config: &VllmConfig) -> Vec<TurnAt> {
        turns_of_blocks(s, config)
    }

    fn take_turn(
        &mut self,
        s: &mut Sequence,
        TurnAt { boundary, turn }: TurnAt,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<u64> {
        take_block_turn(self, s, TurnAt { boundary, turn }, config, now_ns)
    }
}

/// Allocates blocks of one size for a request, up to `most` in all of which `free` are free. Returns how many are new;
/// `None` if free ones are too few.
pub(super) fn grow_by_blocks<B: Blocks>(
    store: &mut B,
    s: &mut Sequence,
    most: u64,
    free: u64,
    now_ns: u64,
) -> Answer<Option<u64>> {
    let blocks = most.saturating_sub(s.held.blocks);
    if blocks > free {
        return Ok(None);
    }
    if blocks > 0 {
        store.reserve(&[LeaseBlocks::new(s.held.lease, blocks)], now_ns)?;
        s.held.blocks += blocks;
    }
    Ok(Some(blocks))
}

/// Blocks of one size that a request allocates for `tokens` further tokens.
pub(super) fn growth_in_blocks(s: &Sequence, tokens: u64, config: &VllmConfig) -> u64 {
    config.blocks(s.computed + tokens) - s.held.blocks
}

/// First actions of a request whose blocks are all of one size.
pub(super) fn turns_of_blocks(s: &Sequence, config: &VllmConfig) -> Vec<TurnAt> {
    // the first boundary at which it needs a block beyond those it has
    let first_need = s.held.blocks * config.block_size_tokens - s.computed + 1;
    vec![
        TurnAt {
            boundary: first_need,
            turn: Turn::TakesBlock,
        },
        TurnAt {
            boundary: first_fill(s, config),
            turn: Turn::FillsBlock,
        },
    ]
}

/// Takes an action of a request whose blocks are all of one size.
pub(super) fn take_block_turn<B: Blocks>(
    store: &mut B,
    s: &mut Sequence,
    TurnAt { boundary, turn }: TurnAt,
    config: &VllmConfig,
    now_ns: u64,
) -> Answer<u64> {
    if turn == Turn::TakesBlock {
        store.reserve(&[LeaseBlocks::new(s.held.lease, 1)], now_ns)?;
        s.held.blocks += 1;
    } else {
        s.key_step(config, store, s.known + boundary)?;
    }
    Ok(boundary + config.block_size_tokens)
}

/// The first boundary at which a request fills a block that then gets its key.
fn first_fill(s: &Sequence, config: &VllmConfig) -> u64 {
    let block = config.block_size_tokens;
    block - s.known % block
}

impl Blocks for GroupStore {
    fn begin_step(&mut self) {
        GroupStore::begin_step(self);
    }

    fn connector(&mut self) -> Option<&mut dyn Connector> {
        self.has_connector().then_some(self as &mut dyn Connector)
    }

    fn free_blocks(&self) -> u64 {
        GroupStore::free_blocks(self)
    }

    fn is_quiet(&self, running: &Sequence) -> bool {
        GroupStore::is_quiet(self, running.request)
    }

    fn has_ended(&self) -> bool {
        GroupStore::has_ended(self)
    }

    fn has_more(&self) -> bool {
        GroupStore::has_more(self)
    }

    fn admit(&mut self, asked: &Newcomer, _config: &VllmConfig, now_ns: u64) -> Answer<Entry> {
        if self.has_connector() {
            return self.admit_above(asked, now_ns);
        }
        GroupAdmission::admit(self, asked, now_ns)
    }

    fn admit_loaded(
        &mut self,
        s: &mut Sequence,
        asked: Resumed,
        config: &VllmConfig,
    ) -> Answer<bool> {
        if config.reserve_full_isl
            && Blocks::claim(self, s, config) + asked.kept_blocks > GroupStore::free_blocks(self)
        {
            return Ok(false);
        }
        let Resumed {
            end,
            kept_blocks,
            now_ns,
        } = asked;
        self.grow_above(s.held.lease, s.computed, end, kept_blocks, now_ns)
    }

    fn claim(&self, s: &Sequence, config: &VllmConfig) -> u64 {
        GroupStore::claim(self, s.request, s.known, config.steps_in_flight())
    }

    fn grow(
        &mut self,
        s: &mut Sequence,
        end: u64,
        _config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<bool> {
        let ended = s.computed - s.flight.tokens;
        self.grow_to(s.held.lease, ended, end, now_ns)
    }

    fn growth(&self, s: &Sequence, tokens: u64, _config: &VllmConfig) -> Answer<u64> {
        self.lacking_blocks(s.held.lease, s.computed + tokens)
    }

    /// Blocks that leave a window are free, and completed blocks may be hit.
    fn before_news(&self, s: &Sequence, _config: &VllmConfig) -> u64 {
        next_boundary(self, s, 1) - 1
    }

    fn turns(&self, s: &Sequence, _config: &VllmConfig) -> Vec<TurnAt> {
        vec![TurnAt {
            boundary: next_boundary(self, s, 1),
            turn: Turn::Changes,
        }]
    }

    fn take_turn(
        &mut self,
        s: &mut Sequence,
        TurnAt { boundary, .. }: TurnAt,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<u64> {
        let end = s.computed + boundary;
        self.grow_to(s.held.lease, end - s.flight.tokens, end, now_ns)?;
        s.key_step(config, self, s.known + boundary)?;
        Ok(next_boundary(self, s, boundary + 1))
    }
}

/// The first boundary, `from` or later, at which the block tables of a request change. All of its tokens in flight
/// are still computed then, except the token that a boundary brings.
fn next_boundary(store: &GroupStore, s: &Sequence, from: u64) -> u64 {
    let before = s.computed - s.flight.tokens;
    store.next_change(before + from, s.flight.tokens) - before
}

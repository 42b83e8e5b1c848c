//! The pool of one cache group above an engine's tiers.

use super::blocks::{
    grow_by_blocks, growth_in_blocks, take_block_turn, turns_of_blocks, Blocks, Resumed, TurnAt,
};
use super::sequence::Sequence;
use super::VllmConfig;
use crate::convert::fit;
use crate::engines::tiered_pool::TieredPool;
use crate::store::connector::{Connector, LookUp};
use crate::store::contract::{BatchStore, BlockStore};
use crate::store::newcomer::{Entry, Newcomer};
use crate::store::{Answer, LeaseBlocks};

impl Blocks for TieredPool {
    fn connector(&mut self) -> Option<&mut dyn Connector> {
        Some(self)
    }

    fn free_blocks(&self) -> u64 {
        TieredPool::free_blocks(self)
    }

    fn is_quiet(&self, running: &Sequence) -> bool {
        TieredPool::is_quiet(self, running.request)
    }

    fn has_ended(&self) -> bool {
        TieredPool::has_ended(self)
    }

    /// Admits a request with what the pool has and its step loads, or lets it hold blocks for what the tiers have behind
    /// the pool's. Of a prompt found whole a token is computed: by its step here, after the load in the other case.
    fn admit(&mut self, asked: &Newcomer, config: &VllmConfig, now_ns: u64) -> Answer<Entry> {
        let request = asked.request;
        let (in_pool, idle) = self.in_pool(request, asked.matchable_blocks);
        let tokens_of = |blocks: u32| u64::from(blocks) * config.block_size_tokens;
        let known_blocks = fit::<u32>(asked.known_tokens / config.block_size_tokens);
        let by_lmcache = self.found_by_lmcache(request, known_blocks, now_ns);
        let found = match by_lmcache {
            Some(found) => found,
            None => match self.look_up(request, in_pool, known_blocks) {
                LookUp::Later => return Ok(Entry::Later),
                LookUp::Found(end) => tokens_of(end),
                LookUp::Nothing => tokens_of(in_pool),
            },
        };
        let in_step = by_lmcache.is_some();
        let usable = match in_step {
            true => found.min(asked.known_tokens - 1),
            false => found,
        };
        let cached = usable.max(tokens_of(in_pool));
        let loads = cached > tokens_of(in_pool);
        let waits = loads && !in_step;
        if !waits && cached < asked.least_cached_tokens {
            return Ok(Entry::NotYet);
        }
        let (end, claimed) = if waits {
            (cached, asked.claimed_blocks)
        } else {
            (asked.known_tokens.min(cached + asked.step_tokens), 0)
        };
        let new_blocks = |tokens| config.blocks(tokens) - u64::from(in_pool);
        let spare = TieredPool::free_blocks(self).saturating_sub(idle + asked.kept_blocks);
        let whole = asked.whole && new_blocks(asked.known_tokens) > spare;
        if whole || new_blocks(end) + claimed > spare {
            return Ok(Entry::NoCapacity);
        }
        let lease = self.acquire(request, in_pool)?;
        let wanted = LeaseBlocks::new(lease, new_blocks(end));
        if in_step {
            self.admit_above_lmcache(wanted, loads, end, now_ns)?;
        } else {
            self.reserve(&[wanted], now_ns)?;
            self.note_given(request, 0);
        }
        if waits {
            self.load_later(lease, fit::<u32>(config.blocks(cached)), now_ns)?;
        }
        Ok(match (loads, waits) {
            (_, true) => Entry::Loads {
                lease,
                hit_tokens: cached,
                in_pool_blocks: in_pool,
            },
            (true, false) => Entry::Brings {
                lease,
                found_tokens: found,
                in_pool_blocks: in_pool,
                reserved_tokens: end,
            },
            (false, false) => Entry::Admitted {
                lease,
                hit_blocks: in_pool,
                reserved_tokens: end,
            },
        })
    }

    fn admit_loaded(
        &mut self,
        s: &mut Sequence,
        asked: Resumed,
        config: &VllmConfig,
    ) -> Answer<bool> {
        let done =
            self.fits_loaded(s, asked, config) && self.grow(s, asked.end, config, asked.now_ns)?;
        if done {
            self.note_given(s.request, 0);
        }
        Ok(done)
    }

    fn grow(
        &mut self,
        s: &mut Sequence,
        end: u64,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<bool> {
        let (free, held) = (TieredPool::free_blocks(self), s.held.blocks);
        let new = grow_by_blocks(self, s, config.blocks(end), free, now_ns)?;
        if new.is_some_and(|blocks| blocks > 0) {
            self.note_given(s.request, held);
        }
        Ok(new.is_some())
    }

    fn growth(&self, s: &Sequence, tokens: u64, config: &VllmConfig) -> Answer<u64> {
        Ok(growth_in_blocks(s, tokens, config))
    }

    /// The refused request may wait for a block that fills. A block that is taken may have been its hit: a load of
    /// that and what follows holds fewer blocks than its next chunk.
    fn before_news(&self, s: &Sequence, config: &VllmConfig) -> u64 {
        let turns = turns_of_blocks(s, config);
        let first = turns.iter().map(|at| at.boundary).min();
        first.map_or(0, |boundary| boundary - 1)
    }

    fn turns(&self, s: &Sequence, config: &VllmConfig) -> Vec<TurnAt> {
        turns_of_blocks(s, config)
    }

    fn take_turn(
        &mut self,
        s: &mut Sequence,
        at: TurnAt,
        config: &VllmConfig,
        now_ns: u64,
    ) -> Answer<u64> {
        take_block_turn(self, s, at, config, now_ns)
    }
}

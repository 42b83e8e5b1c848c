//! vLLM's block pool with an engine's tiers below, as a timed machine's store.
//!
//! Loads and stores are moves that the machine's channels carry. What a request finds behind the pool's hit is loaded
//! into blocks of its own; another request that finds them on their way holds them and waits for the same load. What
//! a step has computed of a prompt is offered to the tiers at its end.

mod contract;

use std::sync::Arc;

use super::below::{Below, Prompt, Site};
use super::copied_pool::CopiedPool;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::{Answer, Slots, StoreError, GPU};

/// A request's prompt, borrowed from nothing but the keys.
macro_rules! prompt {
    ($store:ident, $request:expr) => {
        Prompt {
            request: $request,
            whole_blocks: $store.whole_blocks($request),
            keys: &$store.pool.keys().clone(),
        }
    };
}

use prompt;

/// A request of whose prompt nothing is to be offered.
const NOTHING: u32 = u32::MAX;

/// The pool, the tiers below it, and what of prompts is still to be offered to them.
#[derive(Debug)]
pub struct TieredPool {
    pool: CopiedPool,
    below: Box<dyn Below>,
    prompt_tokens: Vec<u64>,
    block_size_tokens: u64,
    /// By request the first block of its prompt that is still to be offered.
    to_offer: Vec<u32>,
    holds: Slots<Vec<u64>>,
    /// When room was last taken.
    now_ns: u64,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl TieredPool {
    /// A pool of free blocks above some empty tiers; [`StoreError::Lengths`] where there is no prompt for each request.
    pub fn new(
        keys: Arc<BlockKeys>,
        capacity_blocks: u32,
        below: Box<dyn Below>,
        prompt_tokens: Vec<u64>,
        block_size_tokens: u64,
    ) -> Answer<Self> {
        let requests = keys.requests();
        if prompt_tokens.len() != requests as usize {
            return Err(StoreError::Lengths(requests));
        }
        if block_size_tokens == 0 {
            return Err(StoreError::EmptyPage);
        }
        Ok(Self {
            pool: CopiedPool::new(keys, capacity_blocks),
            below,
            prompt_tokens,
            block_size_tokens,
            to_offer: vec![NOTHING; requests as usize],
            holds: Slots::default(),
            now_ns: 0,
            records: Records::default(),
        })
    }

    fn tokens(&self, request: u32) -> u64 {
        self.prompt_tokens[request as usize]
    }

    fn whole_blocks(&self, request: u32) -> u32 {
        (self.tokens(request) / self.block_size_tokens) as u32
    }

    /// How many leading blocks the tiers may bring: the prompt's last one too, if it is full.
    fn askable_below(&self, request: u32, limit: u32) -> u32 {
        let tokens = self.tokens(request);
        if tokens.saturating_sub(1) / self.block_size_tokens == u64::from(limit) {
            return self.whole_blocks(request);
        }
        limit
    }

    /// Refuses a tier that it does not have.
    fn known_tier(&self, tier: usize) -> Answer<()> {
        let tiers = self.below.tiers();
        if tier < tiers {
            return Ok(());
        }
        Err(StoreError::NoSuchTier(tiers))
    }

    /// Blocks of a tier that a faster one has too.
    pub fn duplicates(&self, tier: usize) -> Answer<u64> {
        self.known_tier(tier)?;
        if tier == GPU {
            return Ok(0);
        }
        Ok(self.below.duplicates(&self.pool, tier))
    }

    /// The keys of its requests' blocks.
    pub fn keys(&self) -> &BlockKeys {
        self.pool.keys()
    }

    /// Offers what has been computed of a prompt, as far as that has not been taken.
    fn offer(&mut self, request: u32, now_ns: u64) {
        let start = self.to_offer[request as usize];
        let whole = self.whole_blocks(request);
        let end = self.pool.keyed(request).min(whole);
        let prompt = prompt!(self, request);
        let site = Site {
            pool: &mut self.pool,
            records: &mut self.records,
            now_ns,
        };
        if end > start && self.below.offer(site, prompt, (start, end)) {
            self.to_offer[request as usize] = end;
        }
        if self.to_offer[request as usize] == whole {
            self.to_offer[request as usize] = NOTHING;
        }
    }
}

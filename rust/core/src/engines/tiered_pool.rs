//! vLLM's block pool with an engine's tiers below, as a timed machine's store.
//!
//! Loads and stores are moves that the machine's channels carry. Blocks found behind the pool's hit are loaded into
//! new blocks of the request. Another request that finds these blocks while they are loading holds them and waits for
//! the same load. At the end of a step, its computed prompt blocks are offered to the tiers.

mod connector;
mod contract;
mod in_steps;

use std::sync::Arc;

use super::below::{Below, Prompt, Site};
use super::connector_jobs::Jobs;
use super::copied_pool::CopiedPool;
use super::lmcache_connector::LmcacheConnector;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::{Answer, LeaseBlocks, MoveId, Slots, StoreError, GPU};

/// Builds the `Prompt` of a request, borrowing nothing but the keys.
macro_rules! prompt {
    ($store:ident, $request:expr) => {
        Prompt {
            request: $request,
            whole_blocks: $store.whole_blocks($request),
            chunk_blocks: $store.below.chunk_blocks(),
            keys: &$store.pool.keys().clone(),
        }
    };
}

use prompt;

/// Marker of a request without prompt blocks to offer.
const NOTHING: u32 = u32::MAX;

/// Pool, the tiers below it, and the prompt blocks still to be offered to them.
#[derive(Debug)]
pub struct TieredPool {
    pool: CopiedPool,
    below: Box<dyn Below>,
    prompt_tokens: Vec<u64>,
    block_size_tokens: u64,
    /// For each request the first block of its prompt that is still to be offered.
    to_offer: Vec<u32>,
    holds: Slots<Vec<u64>>,
    /// Time of the last reservation.
    now_ns: u64,
    /// Copies decided by an engine's own scheduler.
    jobs: Jobs,
    /// LMCache's connector, if the tiers are its.
    lmcache: Option<LmcacheConnector>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl TieredPool {
    /// A pool of free blocks above empty tiers; [`StoreError::Lengths`] if there is not one prompt for each
    /// request.
    pub fn new(
        keys: Arc<BlockKeys>,
        capacity_blocks: u32,
        mut below: Box<dyn Below>,
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
        let chunk_tokens = u64::from(below.chunk_blocks()) * block_size_tokens;
        let has_connector = below.in_steps().is_some();
        Ok(Self {
            lmcache: has_connector.then(|| LmcacheConnector::new(chunk_tokens)),
            pool: CopiedPool::new(keys, capacity_blocks),
            below,
            prompt_tokens,
            block_size_tokens,
            to_offer: vec![NOTHING; requests as usize],
            holds: Slots::default(),
            now_ns: 0,
            jobs: Jobs::default(),
            records: Records::default(),
        })
    }

    fn tokens(&self, request: u32) -> u64 {
        self.prompt_tokens[request as usize]
    }

    fn whole_blocks(&self, request: u32) -> u32 {
        fit::<u32>(self.tokens(request) / self.block_size_tokens)
    }

    /// Returns the leading blocks that the tiers may load, including the prompt's last block if it is full.
    fn askable_below(&self, request: u32, limit: u32) -> u32 {
        let tokens = self.tokens(request);
        if tokens.saturating_sub(1) / self.block_size_tokens == u64::from(limit) {
            return self.whole_blocks(request);
        }
        limit
    }

    /// Takes blocks for leases and records evictions; `None` if refused, else the moves that still read them.
    fn take_blocks(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Option<Vec<MoveId>>> {
        let before = self.pool.evictions();
        let waits = self.pool.reserve(wanted)?;
        self.now_ns = now_ns;
        let evicted = self.pool.evictions() - before;
        self.records.evicted_from(GPU, evicted, now_ns);
        Ok(waits)
    }

    /// Refuses an unknown tier.
    fn known_tier(&self, tier: usize) -> Answer<()> {
        let tiers = self.below.tiers();
        if tier < tiers {
            return Ok(());
        }
        Err(StoreError::NoSuchTier(tiers))
    }

    /// Returns the number of a tier's blocks that a faster tier has too.
    pub fn duplicates(&self, tier: usize) -> Answer<u64> {
        self.known_tier(tier)?;
        if tier == GPU {
            return Ok(0);
        }
        Ok(self.below.duplicates(&self.pool, tier))
    }

    /// Returns the keys of the requests' blocks.
    pub fn keys(&self) -> &BlockKeys {
        self.pool.keys()
    }

    /// Offers the first `keyed` blocks of a prompt, without those that the tiers have accepted.
    fn offer(&mut self, request: u32, keyed: u32, now_ns: u64) {
        let start = self.to_offer[request as usize];
        let prompt = prompt!(self, request);
        let whole = prompt.whole_chunks() * prompt.chunk_blocks;
        let end = keyed.min(whole) / prompt.chunk_blocks * prompt.chunk_blocks;
        let site = Site {
            pool: &mut self.pool,
            records: &mut self.records,
            now_ns,
        };
        if end > start && self.below.offer(site, prompt, BlockRange::new(start, end)) {
            self.to_offer[request as usize] = end;
        }
        if self.to_offer[request as usize] >= whole {
            self.to_offer[request as usize] = NOTHING;
        }
    }
}

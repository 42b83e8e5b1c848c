//! vLLM's block pool with an engine's tiers below, as a timed machine's store.
//!
//! Loads and stores are moves that the machine's channels carry. What a request finds behind the pool's hit is loaded
//! into blocks of its own; another request that finds them on their way holds them and waits for the same load. What
//! a step has computed of a prompt is offered to the tiers at its end.

use std::sync::Arc;

use super::below::{Below, InParts, Prompt, Site};
use super::copied_pool::CopiedPool;
use super::leases::EngineLease;
use crate::batch::BatchStore;
use crate::keys::BlockKeys;
use crate::loading_store::{LoadingStore, MovingStore, OffersComputed};
use crate::machine_store::{MachineStore, TierLosses, TierRoom};
use crate::records::Records;
use crate::store::{
    Answer, HoldId, LeaseId, MoveId, Order, Part, Room, Slots, StoreError, Times, Violation, GPU,
};

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

    /// Notes what a request found; its blocks are held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> Answer<LeaseId> {
        self.pool.leases.known_request(request)?;
        let found = self.pool.found(request, hits);
        self.pool.leases.give(request, hits, |_, _| found)
    }

    /// Takes an acquisition back.
    pub fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.pool.leases.abandon(lease)
    }

    /// Lets go of a request's blocks; what it used of the tiers may count once more.
    pub fn release(&mut self, lease: LeaseId) -> Answer<()> {
        let ended = self.pool.leases.end(lease)?;
        if ended.admitted {
            self.pool.release(ended.request);
        }
        self.to_offer[ended.request as usize] = NOTHING;
        self.below.finish(ended.request);
        Ok(())
    }

    /// Checks the pool and the tiers from scratch (I2, I3); the first violation is the error.
    pub fn check(&self) -> Result<(), Violation> {
        self.pool.check()?;
        self.below.check(&self.pool)
    }

    /// Offers what has been computed of a prompt, as far as that has not been taken.
    fn offer(&mut self, request: u32, now_ns: u64) {
        let start = self.to_offer[request as usize];
        let whole = self.whole_blocks(request);
        let end = self.pool.keyed(request).min(whole);
        let keys = self.pool.keys().clone();
        let prompt = Prompt {
            request,
            whole_blocks: whole,
            keys: &keys,
        };
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

impl BatchStore for TieredPool {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        let first = match *wanted {
            [(lease, _)] => Some(self.pool.leases.get(lease)?).filter(|lease| !lease.admitted),
            _ => None,
        };
        let before = self.pool.evictions();
        let Some(waits) = self.pool.reserve(wanted)? else {
            return Ok(Room::Refused);
        };
        self.now_ns = now_ns;
        let evicted = self.pool.evictions() - before;
        self.records.evicted_from(GPU, evicted, now_ns);
        if let Some(EngineLease { request, .. }) = first {
            self.to_offer[request as usize] = self.below.admitted(prompt!(self, request));
        }
        Ok(if waits.is_empty() {
            Room::Ready
        } else {
            Room::Pending(waits)
        })
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        let lease = self.pool.leases.get(lease)?;
        if lease.admitted {
            return Ok(self.pool.keyed(lease.request));
        }
        Ok(lease.hits)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let request = self.pool.leases.admitted(lease)?.request;
        self.pool.give_keys(request, to)
    }

    fn spare_blocks(&self) -> u64 {
        self.pool.spare_blocks()
    }
}

impl MachineStore for TieredPool {
    fn known_request(&self, request: u32) -> Answer<()> {
        self.pool.leases.known_request(request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        self.known_request(request)?;
        let in_pool = self.pool.found(request, limit);
        let askable = self.askable_below(request, limit);
        let found = self.below.found(prompt!(self, request), in_pool, askable);
        Ok((found, self.pool.ready(request, in_pool)))
    }

    fn room(&self, tier: usize) -> Answer<TierRoom> {
        self.known_tier(tier)?;
        if tier != GPU {
            return Ok(self.below.room(&self.pool, tier));
        }
        let (free, active, cached, in_flight) = self.pool.room();
        Ok(TierRoom {
            free,
            active,
            cached,
            in_flight,
            evictable: cached,
        })
    }

    fn losses(&self, tier: usize) -> Answer<TierLosses> {
        self.known_tier(tier)?;
        if tier != GPU {
            return Ok(self.below.losses(tier));
        }
        Ok(TierLosses {
            evicted: self.pool.evictions(),
            ..TierLosses::default()
        })
    }

    fn merged_blocks(&self) -> u64 {
        0
    }

    fn records(&self) -> &Records {
        &self.records
    }

    fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }

    fn check(&self) -> Result<(), Violation> {
        TieredPool::check(self)
    }
}

impl LoadingStore for TieredPool {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        let prompt = prompt!(self, request);
        // the pool always computes a prompt's last token, so its block comes from a tier
        let whole = u64::from(limit) * self.block_size_tokens == self.tokens(request);
        let last = if whole { limit - 1 } else { limit };
        let mut in_pool = self.pool.found(request, last);
        if in_pool == last && last < limit && !self.below.brings(prompt, last) {
            in_pool = self.pool.found(request, limit);
        }
        let mut parts = InParts::default();
        for block in 0..in_pool {
            parts.add(block, (GPU, self.pool.move_of(request, block)));
        }
        let below = self.below.parts(&self.pool, prompt, (in_pool, limit));
        parts.done().into_iter().chain(below).collect()
    }

    fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId> {
        self.known_tier(tier)?;
        let keys = self.pool.keys_of(request, (0, end));
        Ok(self.holds.insert(self.below.protect(keys)))
    }

    fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()> {
        self.known_tier(tier)?;
        let held = self.holds.remove(hold).ok_or(StoreError::NoSuchHold)?;
        self.below.let_be(&held);
        Ok(())
    }

    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        let request = self.pool.leases.admitted(lease)?.request;
        let depth = self.pool.keyed(request);
        if to < depth {
            return Err(StoreError::NoBlocks);
        }
        let blocks = self.pool.blocks(request, (depth, to));
        if blocks.len() < (to - depth) as usize {
            return Err(StoreError::NotReserved);
        }
        let keys = self.pool.keys_of(request, (depth, to));
        let prompt = prompt!(self, request);
        let site = Site {
            pool: &mut self.pool,
            records: &mut self.records,
            now_ns: self.now_ns,
        };
        let after = self.below.load(site, prompt, (depth, to), after);
        self.below.hold(&keys);
        let id = self.pool.copies.read(keys, blocks, &after);
        self.pool.give_keys(request, to)?;
        let before = self.to_offer[request as usize];
        self.to_offer[request as usize] = self.below.offers_after(before, to);
        Ok(id)
    }

    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        let request = self.pool.leases.admitted(lease)?.request;
        if to < self.pool.keyed(request) {
            return Err(StoreError::NoBlocks);
        }
        if self.pool.found(request, to) < to {
            return Err(StoreError::NotFound);
        }
        self.pool.join(request, to);
        Ok(())
    }
}

impl MovingStore for TieredPool {
    fn has_orders(&self) -> bool {
        self.pool.copies.has_orders()
    }

    fn take_orders(&mut self) -> Vec<Order> {
        self.pool.copies.take_orders()
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        let copy = self.pool.copies.finish(id)?;
        self.below.ended(&copy, id);
        Ok(())
    }
}

impl OffersComputed for TieredPool {
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        for &lease in leases {
            let request = self.pool.leases.get(lease)?.request;
            if self.to_offer[request as usize] != NOTHING {
                self.offer(request, now_ns);
            }
        }
        Ok(())
    }

    fn is_to_offer(&self, lease: LeaseId) -> bool {
        let lease = self.pool.leases.get(lease);
        lease.is_ok_and(|lease| self.to_offer[lease.request as usize] != NOTHING)
    }
}

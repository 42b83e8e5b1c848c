//! SGLang's radix tree as the GPU tier of a timed replica: leases, room and records over `radix_pool`.
//!
//! A request has one lease at a time, a block is a page. A request is admitted when its prompt and all of its answer
//! would fit; its prompt is checked into the tree as it is computed, its answer when it ends. Every decoding
//! request asks for a page at every step, needed or not, so a page is evicted ahead of its use.

mod in_tokens;

use std::sync::Arc;

use super::engine_store::engine_store;
use super::leaf_order::LeafOrder;
use super::leases::{EngineLease, EngineLeases};
use super::radix_pool::RadixPool;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::{
    gpu_alone, BatchStore, BlockStore, MachineStore, TierLosses, TierRoom,
};
use crate::store::{Answer, LeaseId, Room, StoreError, Times, Violation};

pub use in_tokens::Prefix;

/// No cache has so many tokens; below it sums of lengths and pages stay numbers.
const MOST_TOKENS: u64 = 1 << 62;

/// What a request has at most computed, in tokens: its prompt, and prompt + output − 1 in the end.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    /// By request: tokens of its prompt.
    pub prompt_tokens: Vec<u64>,
    /// By request: tokens that have KV when it is done, prompt + output − 1.
    pub total_tokens: Vec<u64>,
}

impl Lengths {
    /// Refuses lengths that are not those of so many requests.
    pub(super) fn check(&self, requests: u32) -> Answer<()> {
        let wholes = self.prompt_tokens.iter().zip(&self.total_tokens);
        let fit = |(prompt, total): (&u64, &u64)| prompt <= total && *total < MOST_TOKENS;
        let both = [self.prompt_tokens.len(), self.total_tokens.len()];
        if both != [requests as usize; 2] || !wholes.into_iter().all(fit) {
            return Err(StoreError::Lengths(requests));
        }
        Ok(())
    }
}

/// So many pages of `page` tokens, or as many as their tokens can be counted. Refuses an empty page.
pub(super) fn at_most(pages: u64, page: u32) -> Answer<u64> {
    if page == 0 {
        return Err(StoreError::EmptyPage);
    }
    Ok(pages.min(MOST_TOKENS / u64::from(page)))
}

/// The pages of one GPU under SGLang's rules.
#[derive(Debug)]
pub struct RadixStore {
    pool: RadixPool,
    page: u64,
    capacity_pages: u64,
    lengths: Lengths,
    leases: EngineLeases,
    /// Leading pages of an admitted request that were found or computed.
    full: Vec<u32>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl RadixStore {
    /// A pool of free pages of `page` tokens. Refuses an empty page and lengths that are not the requests'.
    pub fn new(
        keys: Arc<BlockKeys>,
        order: LeafOrder,
        page: u32,
        capacity_pages: u64,
        lengths: Lengths,
    ) -> Answer<Self> {
        let requests = keys.requests();
        lengths.check(requests)?;
        let capacity_pages = at_most(capacity_pages, page)?;
        let tokens = capacity_pages * u64::from(page);
        let prompts = lengths.prompt_tokens.clone();
        Ok(Self {
            pool: RadixPool::new(keys, order, page, tokens, prompts),
            page: u64::from(page),
            capacity_pages,
            lengths,
            leases: EngineLeases::new(requests),
            full: vec![0; requests as usize],
            records: Records::default(),
        })
    }

    /// The keys of the trace's pages.
    pub fn keys(&self) -> &BlockKeys {
        self.pool.tree.keys()
    }

    /// Refuses a request beyond the trace.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        self.leases.known_request(request)
    }

    /// How many of the request's leading pages are in the tree; nothing changes.
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        self.pool.tree.peek(request, limit)
    }

    /// Notes what a request found; it is held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> Answer<LeaseId> {
        let tree = &self.pool.tree;
        let found = |request, pages| tree.peek(request, pages);
        self.leases.give(request, hits, found)
    }

    /// Takes an acquisition back.
    pub fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.leases.abandon(lease)
    }

    /// Checks what the request computed into the tree and lets go of it.
    pub fn release(&mut self, lease: LeaseId) -> Answer<()> {
        let ended = self.leases.end(lease)?;
        if ended.admitted {
            let full = std::mem::take(&mut self.full[ended.request as usize]);
            self.pool.finish(ended.request, u64::from(full) * self.page);
        }
        Ok(())
    }

    /// (free, held and not in the tree, in the tree, of these evictable) pages.
    pub fn room(&self) -> (u64, u64, u64, u64) {
        let free = self.free_pages();
        let cached = self.pool.counts().pages;
        let evictable = self.pool.tree.evictable_pages();
        (free, self.capacity_pages - free - cached, cached, evictable)
    }

    /// Pages evicted so far.
    pub fn evictions(&self) -> u64 {
        self.pool.counts().evicted_pages
    }

    /// Pages computed that the tree had already.
    pub fn merged_pages(&self) -> u64 {
        self.pool.merged_tokens / self.page
    }

    /// Checks the tree and its room from scratch (I2, I3); the first violation is the error. Cost: linear in
    /// nodes and requests.
    pub fn check(&self) -> Result<(), Violation> {
        self.pool.check()?;
        for request in (0..self.pool.requests()).filter(|&r| self.pool.holds(r)) {
            let full = u64::from(self.full[request as usize]) * self.page;
            let protected = self.pool.protected_tokens(request);
            let filled = self.pool.filled_tokens(request);
            if full < protected || filled < full {
                return Err(format!(
                    "I3: request {request} has computed {full} tokens, {protected} in the tree, room for {filled}"
                ));
            }
        }
        Ok(())
    }

    fn free_pages(&self) -> u64 {
        self.pool.free_tokens() / self.page
    }

    /// Holds what a request found and takes its prompt's room; false, without a trace, where the whole
    /// request would not fit.
    fn admit(&mut self, lease: EngineLease, pages: u64) -> bool {
        let asked = pages.saturating_add(u64::from(lease.hits));
        if asked > self.capacity_pages {
            return false;
        }
        let total = self.lengths.total_tokens[lease.request as usize];
        let tokens = total.max(asked * self.page);
        if !self.pool.would_fit(lease.request, lease.hits, tokens) {
            return false;
        }
        let found = u64::from(lease.hits) * self.page;
        self.pool.admit(lease.request, found);
        self.full[lease.request as usize] = lease.hits;
        self.pool.allocate(lease.request, asked * self.page)
    }

    /// Gives the next page to each decoding request that lacks one, all or nothing.
    fn extend(&mut self, wanted: &[(LeaseId, u64)]) -> bool {
        let pages = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1));
        self.pool.demand(wanted.len() as u64 * self.page);
        if pages.is_none_or(|pages| pages > self.free_pages()) {
            return false;
        }
        for &(lease, pages) in wanted {
            let request = self.leases.request(lease);
            self.pool.take(request, pages * self.page);
        }
        true
    }
}

impl BatchStore for RadixStore {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        let tree = &self.pool.tree;
        let first = self.leases.asked(wanted, |r, pages| tree.peek(r, pages))?;
        let before = self.evictions();
        let got = match (first, wanted) {
            (Some(lease), &[(id, pages)]) => {
                let got = self.admit(lease, pages);
                if got {
                    self.leases.admit(id);
                }
                got
            }
            _ => self.extend(wanted),
        };
        let evicted = self.evictions() - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(if got { Room::Ready } else { Room::Refused })
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        let lease = self.leases.get(lease)?;
        if lease.admitted {
            return Ok(self.full[lease.request as usize]);
        }
        Ok(lease.hits)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let request = self.leases.admitted(lease)?.request;
        if u64::from(to) * self.page > self.pool.filled_tokens(request) {
            return Err(StoreError::NotReserved);
        }
        let full = &mut self.full[request as usize];
        if to <= *full {
            return Ok(());
        }
        *full = to;
        let prompt_pages = self.lengths.prompt_tokens[request as usize] / self.page;
        let tokens = prompt_pages.min(u64::from(to)) * self.page;
        if tokens > self.pool.protected_tokens(request) {
            self.pool.cache(request, tokens);
        }
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        self.free_pages() + self.pool.tree.evictable_pages()
    }
}

engine_store!(RadixStore, room: RadixStore::room, merged: RadixStore::merged_pages);

impl BlockStore for RadixStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        RadixStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        RadixStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        RadixStore::release(self, lease)
    }
}

//! SGLang's radix tree as the GPU tier of a timed replica: leases, room and records over `radix_pool`.
//!
//! A lease is its request, a block is a page. A request is admitted when its prompt and all of its answer
//! would fit; its prompt is checked into the tree as it is computed, its answer when it ends. Every decoding
//! request asks for a page at every step, needed or not, so a page is evicted ahead of its use.

use std::sync::Arc;

use super::radix_pool::RadixPool;
use super::radix_tree::LeafPolicy;
use crate::batch::BatchStore;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::{Answer, LeaseId, Room, Times, Violation};

/// What a request has at most computed, in tokens: its prompt, and prompt + output − 1 in the end.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    /// By request: tokens of its prompt.
    pub prompt_tokens: Vec<u64>,
    /// By request: tokens that have KV when it is done, prompt + output − 1.
    pub total_tokens: Vec<u64>,
}

/// The pages of one GPU under SGLang's rules.
#[derive(Debug)]
pub struct RadixStore {
    pool: RadixPool,
    page: u64,
    capacity_pages: u64,
    lengths: Lengths,
    /// Pages found at a request's admission, until its room is taken.
    hits: Vec<u32>,
    /// Leading pages of a request that were found or computed.
    full: Vec<u32>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl RadixStore {
    /// A pool of free pages of `page` tokens.
    pub fn new(
        keys: Arc<BlockKeys>,
        policy: LeafPolicy,
        page: u32,
        capacity_pages: u64,
        lengths: Lengths,
    ) -> Self {
        let requests = lengths.prompt_tokens.len();
        let tokens = capacity_pages * u64::from(page);
        let prompts = lengths.prompt_tokens.clone();
        Self {
            pool: RadixPool::new(keys, policy, page, tokens, prompts),
            page: u64::from(page),
            capacity_pages,
            lengths,
            hits: vec![0; requests],
            full: vec![0; requests],
            records: Records::default(),
        }
    }

    /// How many requests it knows.
    pub fn requests(&self) -> u32 {
        self.pool.requests()
    }

    /// How many of the request's leading pages are in the tree; nothing changes.
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        self.pool.tree.peek(request, limit)
    }

    /// Notes what a request found; it is held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> LeaseId {
        self.hits[request as usize] = hits;
        self.full[request as usize] = hits;
        LeaseId::from(request)
    }

    /// Checks what the request computed into the tree and lets go of it.
    pub fn release(&mut self, lease: LeaseId) {
        let full = u64::from(std::mem::take(&mut self.full[lease as usize]));
        self.pool.finish(lease as u32, full * self.page);
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
    fn admit(&mut self, lease: u32, pages: u64) -> bool {
        let hits = self.hits[lease as usize];
        let asked = u64::from(hits) + pages;
        let tokens = self.lengths.total_tokens[lease as usize].max(asked * self.page);
        if !self.pool.would_fit(lease, hits, tokens) {
            return false;
        }
        self.pool.admit(lease, u64::from(hits) * self.page);
        self.pool.allocate(lease, asked * self.page)
    }

    /// Gives the next page to each decoding request that lacks one, all or nothing.
    fn extend(&mut self, wanted: &[(LeaseId, u64)]) -> bool {
        self.pool.demand(wanted.len() as u64 * self.page);
        if wanted.iter().map(|w| w.1).sum::<u64>() > self.free_pages() {
            return false;
        }
        for &(lease, pages) in wanted {
            self.pool.take(lease as u32, pages * self.page);
        }
        true
    }
}

impl BatchStore for RadixStore {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        let before = self.evictions();
        let got = match *wanted {
            [(lease, pages)] if !self.pool.holds(lease as u32) => self.admit(lease as u32, pages),
            _ => self.extend(wanted),
        };
        let evicted = self.evictions() - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(if got { Room::Ready } else { Room::Refused })
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        Ok(self.full[lease as usize])
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let lease = lease as u32;
        self.full[lease as usize] = to;
        let prompt_pages = self.lengths.prompt_tokens[lease as usize] / self.page;
        let tokens = prompt_pages.min(u64::from(to)) * self.page;
        if tokens > self.pool.protected_tokens(lease) {
            self.pool.cache(lease, tokens);
        }
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        self.free_pages() + self.pool.tree.evictable_pages()
    }
}

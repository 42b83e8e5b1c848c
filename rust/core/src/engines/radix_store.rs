//! SGLang's tree as the tiers of a timed replica: leases, room, copies and records over `radix_pool`. The classic tree
//! has the GPU alone, the default one HiCache's host tier below it, and maybe a storage.
//!
//! A request has one lease at a time, a block is a page. A request is admitted when its prompt and all of its answer
//! would fit; its prompt is checked into the tree as it is computed, its answer when it ends. Every decoding
//! request asks for a page at every step, needed or not, so a page is evicted ahead of its use.
//!
//! The tree decides when it is asked, as SGLang's does: a loaded page is in the tree at once and computed with when it
//! has come; a written one may not leave the device before its copy is there (write_through), or who gets its room
//! waits for the copy (write_back).
//!
//! | file | what lives there |
//! |---|---|
//! | `copies` | loads and writes under way, and the pages that they bring |
//! | `counts` | rooms, losses and checks |
//! | `in_tokens` | what SGLang's own scheduler asks, without leases |
//! | `slots` | what is found, and on which tier |
//! | `storage` | a storage below the host |

mod contract;
mod copies;
mod counts;
mod in_tokens;
mod lookup;
mod storage;
#[cfg(test)]
mod storage_tests;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::leases::{EngineLease, EngineLeases};
use super::radix_pool::RadixPool;
use super::radix_tree::host::{HostTier, WritePolicy};
use super::radix_tree::worth::LeafStrategy;
use super::radix_tree::{RadixTree, TreeRules};
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::BatchStore;
use crate::store::{Answer, LeaseId, MoveId, Order, Reservation, StoreError, Times};
use copies::Copies;
pub use in_tokens::Prefix;
pub use storage::StorageConfig;
use storage::StorageTier;

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
    fn check(&self, requests: u32) -> Answer<()> {
        let wholes = self.prompt_tokens.iter().zip(&self.total_tokens);
        let fit = |(prompt, total): (&u64, &u64)| prompt <= total && *total < MOST_TOKENS;
        let both = [self.prompt_tokens.len(), self.total_tokens.len()];
        if both != [requests as usize; 2] || !wholes.into_iter().all(fit) {
            return Err(StoreError::Lengths(requests));
        }
        Ok(())
    }
}

/// What a store is made with, beside its requests.
#[derive(Debug, Clone, Copy)]
pub struct RadixConfig {
    /// What orders leaves, on both tiers.
    pub strategy: LeafStrategy,
    /// Tokens of a page.
    pub page: u32,
    /// Pages of the device.
    pub device_pages: u64,
    /// Pages of the host of the default tree, and when a node is written there; None: the classic tree, the GPU alone.
    pub host: Option<(u64, WritePolicy)>,
}

impl RadixConfig {
    /// So many pages, or as many as their tokens can be counted.
    fn at_most(&self, pages: u64) -> u64 {
        pages.min(MOST_TOKENS / u64::from(self.page))
    }
}

/// What a running request has computed.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Leading pages that were found, loaded or computed.
    full: u32,
    /// Whether its prompt is still to be checked in whole.
    is_computing: bool,
}

/// The pages of one machine's GPU, and maybe host, under SGLang's rules.
#[derive(Debug)]
pub struct RadixStore {
    pool: RadixPool,
    page: u64,
    device_pages: u64,
    host_pages: u64,
    lengths: Lengths,
    leases: EngineLeases,
    /// By request.
    progress: Vec<Progress>,
    /// How many leading pages each request last asked for. A look-up changes nothing else, and is asked of a store
    /// that others may look at.
    limits: Vec<AtomicU32>,
    copies: Copies,
    storage: Option<StorageTier>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl RadixStore {
    /// The keys of the trace's pages.
    pub fn keys(&self) -> &BlockKeys {
        self.pool.tree.keys()
    }

    /// Empty tiers. Refuses an empty page and lengths that are not the requests'.
    pub fn new(keys: Arc<BlockKeys>, config: RadixConfig, lengths: Lengths) -> Answer<Self> {
        let requests = keys.requests();
        lengths.check(requests)?;
        if config.page == 0 {
            return Err(StoreError::EmptyPage);
        }
        let device_pages = config.at_most(config.device_pages);
        let host_pages = config.host.map_or(0, |host| config.at_most(host.0));
        let host = config.host.map(|host| HostTier::new(host.1, host_pages));
        let rules = match host {
            None => TreeRules::Classic,
            Some(_) => TreeRules::Unified,
        };
        let (rules, host) = ((rules, config.strategy), host.map(HostTier::in_time));
        let tree = RadixTree::new(keys.clone(), rules, config.page, host);
        let page = u64::from(config.page);
        let prompts = lengths.prompt_tokens.clone();
        Ok(Self {
            pool: RadixPool::new(tree, config.page, device_pages * page, prompts),
            page,
            device_pages,
            host_pages,
            lengths,
            leases: EngineLeases::new(requests),
            progress: vec![Progress::default(); requests as usize],
            limits: (0..requests).map(|_| AtomicU32::new(0)).collect(),
            copies: Copies::new(keys),
            storage: None,
            records: Records::default(),
        })
    }

    /// Whether there is a host tier.
    pub fn has_host(&self) -> bool {
        self.pool.tree.has_host()
    }

    /// Refuses a request beyond the trace.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        self.leases.known_request(request)
    }

    /// Notes what a request found; it is held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> Answer<LeaseId> {
        let (tree, copies) = (&self.pool.tree, &self.copies);
        let found = |request, pages| lookup::found(tree, copies, request, pages);
        self.leases.give(request, hits, found)
    }

    /// Takes an acquisition back.
    pub fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.leases.abandon(lease)
    }

    /// Checks everything that the request computed into the tree and lets go of it.
    pub fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        let before = self.evictions();
        let ended = self.leases.end(lease)?;
        if ended.admitted {
            let progress = std::mem::take(&mut self.progress[ended.request as usize]);
            self.check_in(ended.request, u64::from(progress.full));
            self.pool.release_request(ended.request);
        }
        self.note_evicted(before, now_ns);
        Ok(())
    }

    /// Holds what a request found, loads what is on the host alone and takes the rest of its prompt's room; false,
    /// without a trace, where the whole request would not fit.
    fn admit(&mut self, lease: EngineLease, pages: u64) -> bool {
        let request = lease.request as usize;
        let limit = if self.has_host() {
            let most = u32::try_from(self.device_pages).unwrap_or(u32::MAX);
            self.limits[request].load(Ordering::Relaxed).min(most)
        } else {
            lease.hits
        };
        let total = self.lengths.total_tokens[request];
        if !self.pool.admit_whole(lease.request, limit, pages, total) {
            return false;
        }
        self.progress[request] = Progress {
            full: lease.hits,
            is_computing: true,
        };
        true
    }

    /// Gives the next page to each decoding request that lacks one, all or nothing.
    fn extend(&mut self, wanted: &[(LeaseId, u64)]) -> bool {
        let of = |&(lease, pages): &(LeaseId, u64)| (self.leases.request(lease), pages);
        let wanted: Vec<(u32, u64)> = wanted.iter().map(of).collect();
        self.pool.extend_all(&wanted)
    }

    /// Counts pages as found that another request is loading; the lease holds them already.
    pub fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        let request = self.ensure_capacity(lease, to)?;
        self.progress[request as usize].full = to;
        Ok(())
    }

    /// The request of a lease; refuses pages that have no room.
    fn ensure_capacity(&self, lease: LeaseId, to: u32) -> Answer<u32> {
        let request = self.leases.admitted(lease)?.request;
        if u64::from(to) * self.page > self.pool.filled_tokens(request) {
            return Err(StoreError::NotReserved);
        }
        Ok(request)
    }

    /// Sends the lease's next pages up to `to`, which its room was taken for; the move.
    pub fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        let request = self.ensure_capacity(lease, to)?;
        let progress = &mut self.progress[request as usize];
        let pages = (progress.full.min(to), to);
        progress.full = to;
        Ok(self.copies.load(request, pages, after))
    }

    /// Checks in prompts of which a step computed less than a page; a prompt counts once it is computed.
    pub fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        let before = self.evictions();
        for &lease in leases {
            let request = self.leases.get(lease)?.request;
            self.check_in_prompt(request);
        }
        self.note_evicted(before, now_ns);
        Ok(())
    }

    /// Whether a lease's prompt is still to be checked in whole.
    pub fn is_computing(&self, lease: LeaseId) -> bool {
        let lease = self.leases.get(lease);
        lease.is_ok_and(|lease| self.progress[lease.request as usize].is_computing)
    }

    fn check_in_prompt(&mut self, request: u32) {
        let progress = self.progress[request as usize];
        if !progress.is_computing {
            return;
        }
        let prompt = self.lengths.prompt_tokens[request as usize] / self.page;
        let pages = u64::from(progress.full).min(prompt);
        let protected = self.pool.protected_tokens(request);
        // a prompt found whole counts too but in the classic tree; one preempted may have found pages of its answer
        let is_found_whole = pages == prompt && protected / self.page == prompt;
        if pages * self.page > protected || (is_found_whole && self.has_host()) {
            self.check_in(request, pages);
        }
        if pages == prompt {
            self.progress[request as usize].is_computing = false;
        }
    }

    /// Checks a request's first pages into the tree, and sends what that writes.
    fn check_in(&mut self, request: u32, pages: u64) {
        self.pool.checkpoint(request, pages * self.page);
        self.start_writes();
    }

    /// Whether transmissions were decided since they were last taken.
    pub fn has_orders(&self) -> bool {
        !self.copies.orders.is_empty()
    }

    /// The transmissions decided since the last call.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.copies.orders)
    }
}

impl BatchStore for RadixStore {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Reservation> {
        let (tree, copies) = (&self.pool.tree, &self.copies);
        let found = |request, pages| lookup::found(tree, copies, request, pages);
        let first = self.leases.asked(wanted, found)?;
        let (before, orders) = (self.evictions(), self.copies.orders.len());
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
        self.start_writes();
        self.note_evicted(before, now_ns);
        let sent = self.copies.orders[orders..].iter();
        let sent: Vec<MoveId> = sent.map(|order| order.id).collect();
        Ok(if !got {
            Reservation::Refused
        } else if sent.is_empty() {
            Reservation::Ready
        } else {
            Reservation::Pending(sent)
        })
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        let lease = self.leases.get(lease)?;
        if lease.admitted {
            return Ok(self.progress[lease.request as usize].full);
        }
        Ok(lease.hits)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()> {
        let request = self.ensure_capacity(lease, to)?;
        let before = self.evictions();
        let full = &mut self.progress[request as usize].full;
        if to > *full {
            *full = to;
            self.check_in_prompt(request);
            self.note_evicted(before, ready.ready_ns);
        }
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        let free = self.pool.free_tokens() / self.page;
        if self.pool.tree.writes_back() {
            return free; // what leaves the device may have to be sent first
        }
        free + self.pool.tree.counts().evictable_pages
    }
}

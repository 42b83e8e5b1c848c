//! SGLang's tree as the tiers of a timed replica: leases, capacity, copies and records over `radix_pool`. The
//! classic tree has only the GPU; the default tree has HiCache's host tier below it, and optionally a storage.
//!
//! A request has one lease at a time, and a block is a page. A request is admitted if its prompt and all of its
//! answer would fit. Its prompt is inserted into the tree as it is computed, its answer at the end. Every decoding
//! request asks for a page at every step, whether it needs one or not, so a page is evicted before it is used.
//!
//! The tree decides at the call, as SGLang's does: a loaded page is in the tree at once and usable after its copy.
//! Under write_through a written page may not leave the device before its copy is complete. Under write_back, the
//! request that gets the page's slot waits for the copy.
//!
//! | file | contents |
//! |---|---|
//! | `copies` | loads and writes in flight, and their pages |
//! | `counts` | capacities, evictions and checks |
//! | `in_tokens` | operations for SGLang's own scheduler, without leases |
//! | `lookup` | the pages found, and their tiers |
//! | `submitting` | copies for SGLang's own scheduler, several as one |
//! | `storage_tier`, `storage` | a storage below the host: its pages and moves, and the store's use of it |
//! | `storage_threads`, `storage_running`, `storage_asked` | under SGLang's own scheduler: threads, their work, prefetches |

mod contract;
mod copies;
mod counts;
mod in_tokens;
mod lookup;
mod prefix;
mod storage;
mod storage_asked;
mod storage_running;
#[cfg(test)]
mod storage_tests;
mod storage_threads;
mod storage_tier;
mod submitting;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::leases::{EngineLease, EngineLeases};
use super::radix_pool::in_time::RequestPages;
use super::radix_pool::RadixPool;
use super::radix_tree::host_tier::{HostTier, WritePolicy};
use super::radix_tree::worth::LeafStrategy;
use super::radix_tree::{RadixTree, TreeRules};
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::BatchStore;
use crate::store::{Answer, LeaseBlocks, LeaseId, MoveId, Reservation, StoreError, Times};
use copies::Copies;
pub use prefix::Prefix;
pub use storage_threads::{Asking, Finished, Missed, Ongoing, ThreadOrder};
pub use storage_tier::StorageConfig;
use storage_tier::StorageTier;

/// Bound on a cache's tokens, so that sums of lengths and pages do not overflow.
const MOST_TOKENS: u64 = 1 << 62;

/// Tokens that a request computes at most: its prompt, and prompt + output − 1 at the end.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    /// For each request, the tokens of its prompt.
    pub prompt_tokens: Vec<u64>,
    /// For each request, the tokens with KV when it is finished, prompt + output − 1.
    pub total_tokens: Vec<u64>,
}

impl Lengths {
    /// Refuses lengths unless there is one per request.
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

/// Configuration of a store, without its requests.
#[derive(Debug, Clone, Copy)]
pub struct RadixConfig {
    /// Order in which leaves are evicted, on both tiers.
    pub strategy: LeafStrategy,
    /// Tokens per page.
    pub page: u32,
    /// Pages of the device.
    pub device_pages: u64,
    /// Host pages of the default tree, and its write policy; None: the classic tree, without a host.
    pub host: Option<(u64, WritePolicy)>,
}

impl RadixConfig {
    /// Limits pages to a number whose tokens can be counted.
    fn at_most(&self, pages: u64) -> u64 {
        pages.min(MOST_TOKENS / u64::from(self.page))
    }
}

/// Progress of a running request.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Leading pages that were found, loaded or computed.
    full: u32,
    /// True while its prompt is not inserted completely.
    is_computing: bool,
}

/// Pages of one machine's GPU, and optionally its host, under SGLang's rules.
#[derive(Debug)]
pub struct RadixStore {
    pool: RadixPool,
    page: u64,
    device_pages: u64,
    host_pages: u64,
    lengths: Lengths,
    leases: EngineLeases,
    /// Progress by request.
    progress: Vec<Progress>,
    /// Leading pages that each request last looked up. A look-up changes nothing else, and takes a shared
    /// reference to the store.
    limits: Vec<AtomicU32>,
    copies: Copies,
    storage: Option<StorageTier>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl RadixStore {
    /// Returns the keys of the trace's pages.
    pub fn keys(&self) -> &BlockKeys {
        self.pool.tree.keys()
    }

    /// Empty tiers. Refuses an empty page, and lengths that are not one per request.
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
        let host = host.map(HostTier::in_time);
        let tree = RadixTree::new(keys.clone(), rules, config.strategy, config.page, host);
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

    /// Returns true if there is a host tier.
    pub fn has_host(&self) -> bool {
        self.pool.tree.has_host()
    }

    /// Holds a request's hit, loads pages that are only on the host, and allocates the rest of its prompt.
    /// Returns false, with no change, if the whole request would not fit.
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

    /// Allocates the next page to each decoding request that lacks a page, all or nothing.
    fn extend(&mut self, wanted: &[LeaseBlocks]) -> bool {
        let of = |asked: &LeaseBlocks| RequestPages {
            request: self.leases.request(asked.lease),
            pages: asked.blocks,
        };
        let wanted: Vec<RequestPages> = wanted.iter().map(of).collect();
        self.pool.extend_all(&wanted)
    }

    /// Returns the request of a lease; refuses pages without reserved capacity.
    fn ensure_capacity(&self, lease: LeaseId, to: u32) -> Answer<u32> {
        let request = self.leases.admitted(lease)?.request;
        if u64::from(to) * self.page > self.pool.filled_tokens(request) {
            return Err(StoreError::NotReserved);
        }
        Ok(request)
    }

    fn check_in_prompt(&mut self, request: u32) {
        let progress = self.progress[request as usize];
        if !progress.is_computing {
            return;
        }
        let prompt = self.lengths.prompt_tokens[request as usize] / self.page;
        let pages = u64::from(progress.full).min(prompt);
        let protected = self.pool.protected_tokens(request);
        // A prompt found completely counts too, except in the classic tree. A preempted request may have found
        // pages of its answer.
        let is_found_whole = pages == prompt && protected / self.page == prompt;
        if pages * self.page > protected || (is_found_whole && self.has_host()) {
            self.check_in(request, pages);
        }
        if pages == prompt {
            self.progress[request as usize].is_computing = false;
        }
    }

    /// Inserts a request's first pages into the tree, and starts the writes that follow.
    fn check_in(&mut self, request: u32, pages: u64) {
        self.pool.checkpoint(request, pages * self.page);
        self.start_writes();
    }
}

impl BatchStore for RadixStore {
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        let (tree, copies) = (&self.pool.tree, &self.copies);
        let found = |request, pages| copies.found(tree, request, pages);
        let first = self.leases.asked(wanted, found)?;
        let (before, orders) = (self.evictions(), self.copies.orders.len());
        let got = match (first, wanted) {
            (Some(lease), [asked]) => {
                let got = self.admit(lease, asked.blocks);
                if got {
                    self.leases.admit(asked.lease);
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
        self.leases
            .depth(lease, |request| self.progress[request as usize].full)
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
            return free; // Pages that leave the device may have to be written first.
        }
        free + self.pool.tree.counts().evictable_pages
    }
}

//! The block store of one machine: a radix trie of block runs with residency on one tier or more.
//!
//! | file | contents |
//! |---|---|
//! | `slots` | records under handles that are never reused |
//! | `node` | a run of blocks and its copies on the tiers |
//! | `tier` | capacity of a tier and its eviction candidates |
//! | `trie` | walking, splitting, linking and unlinking runs |
//! | `join` | merging neighboring runs that no longer differ |
//! | `board` | the router's index of all machines: idle machines and prefixes |
//! | `backlog` | victims that wait for blocks of the tier below |
//! | `border` | evicting a run's last blocks by moving its border with the run below |
//! | `candidacy` | eviction candidates, and holds on paths |
//! | `lease` | the blocks of a running request: acquire, commit, release |
//! | `part` | blocks of a path on one tier, as look-ups report them |
//! | `pending` | blocks that are free only when a move finishes |
//! | `ready` | ready times of a copy, and of the blocks of a run |
//! | `shared_prefixes` | the prefixes that requests share |
//! | `times` | ready times and last-access times of copies |
//! | `index_entries` | entries of this store's prefixes in the router's index |
//! | `touch` | recency updates |
//! | `orders` | eviction orders other than recency |
//! | `reserve` | reservations, which evict their shortfall |
//! | `victims` | selection of the runs to evict |
//! | `contract` | the traits of any machine's store |
//! | `connector` | tiers that an engine's own scheduler reaches through a connector |
//! | `newcomer` | a request that asks an engine's pool for admission |
//! | `served` | the contract, implemented by this store |
//! | `demotion` | eviction from a tier that has one below |
//! | `parts` | the trie, the clock and the eviction rules of a store |
//! | `orphans` | runs without a copy on any tier |
//! | `writes` | copies to lower tiers: write-through, selective, onward |
//! | `remote` | reads from and by other machines |
//! | `moves` | copies in flight: loads, demotions, write-through |
//! | `marks` | manual cache operations: claim, mark, remove; list every copy of a path |
//! | `check` | the invariants |
//! | `tests` | each operation in small examples |
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod backlog;
mod board;
mod border;
mod candidacy;
mod check;
pub mod connector;
pub mod contract;
mod demotion;
mod index_entries;
mod join;
mod lease;
mod marks;
mod moves;
pub mod newcomer;
mod node;
mod orders;
mod orphans;
mod part;
mod parts;
mod pending;
mod ready;
mod remote;
mod reserve;
mod served;
mod shared_prefixes;
mod slots;
#[cfg(test)]
mod tests;
mod tier;
mod times;
mod touch;
mod trie;
mod victims;
mod window;
mod writes;

pub use crate::error::{Answer, StoreError};
pub use crate::ids::{HoldId, LeaseId, MoveId, NodeId, NO_MOVE};
pub use crate::tiers::{GPU, REMOTE, STAGING};
pub use backlog::Overflow;
pub use board::{marks, Board, IndexEntry};
pub use check::Violation;
pub use lease::Lease;
pub use marks::{CopyRun, NO_COPY};
pub use moves::Order;
pub use node::State;
pub(crate) use part::add_part;
pub use part::Part;
pub use ready::{Times, NOT_YET};
pub use reserve::{LeaseBlocks, Reservation};
pub use slots::Slots;
pub use tier::{Tier, TierConfig, UNBOUNDED};
pub use times::Residency;
pub use touch::Touch;

use std::hash::Hasher;
use std::sync::Arc;

use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::views::{PrefixStore, PrefixViewConfig};
use moves::{Hold, Move};
use node::{Copy, Run};
use parts::{Clock, EvictionRules, Trie};
use ready::TimeSpan;
use shared_prefixes::SharedPrefixes;

/// The block store of one machine.
///
/// ```
/// use std::sync::Arc;
///
/// use kvsim_core::keys::{BlockKeys, NO_REQUEST};
/// use kvsim_core::store::{LeaseBlocks, Reservation, Store, TierConfig, Times, GPU};
///
/// // Two requests of three blocks that share the first two, on a GPU of four blocks.
/// let (offsets, ids) = (vec![0, 3, 6], vec![0, 1, 2, 0, 1, 3]);
/// let keys = BlockKeys::new(offsets, ids, 1, vec![3, 3], vec![NO_REQUEST; 2]).unwrap();
/// let gpu = TierConfig { capacity_blocks: Some(4), write_back: false };
/// let mut store = Store::new(Arc::new(keys), &[gpu]);
///
/// let first = store.acquire(0, 0)?; // nothing is cached yet
/// assert_eq!(store.reserve(&[LeaseBlocks::new(first, 3)], 0)?, Reservation::Ready);
/// store.commit(first, 3, Times::at(1_000))?;
/// store.release(first, 1_000)?;
///
/// let (found, ready) = store.peek(1, 3);
/// assert_eq!((found, ready), (2, 2));
/// let second = store.acquire(1, ready)?;
/// assert_eq!(store.reserve(&[LeaseBlocks::new(second, 2)], 2_000)?, Reservation::Ready); // one free, one evicted
/// assert_eq!(store.tier(GPU).evictions, 1);
/// # Ok::<(), kvsim_core::store::StoreError>(())
/// ```
#[derive(Debug)]
pub struct Store {
    keys: Arc<BlockKeys>,
    trie: Trie,
    tiers: Vec<Tier>,
    leases: Slots<Lease>,
    moves: Slots<Move>,
    holds: Slots<Hold>,
    orders: Vec<Order>,
    clock: Clock,
    rules: EvictionRules,
    /// The digest and the eviction log of this store.
    pub records: Records,
    /// Blocks computed twice and merged at commit.
    pub merged_blocks: u64,
    /// Entries in routers' indexes.
    index_entries: Vec<IndexEntry>,
    /// Prefixes that may be shared; `None`: all.
    shared: Option<Box<SharedPrefixes>>,
}

impl Store {
    /// Creates an empty store with the given tiers, fastest first.
    pub fn new(keys: Arc<BlockKeys>, tiers: &[TierConfig]) -> Self {
        assert!(!tiers.is_empty(), "a store has a tier");
        Self {
            keys,
            trie: Trie::new(tiers.len()),
            tiers: tiers.iter().map(Tier::new).collect(),
            leases: Slots::default(),
            moves: Slots::default(),
            holds: Slots::default(),
            orders: Vec::new(),
            clock: Clock::default(),
            rules: EvictionRules::default(),
            records: Records::default(),
            merged_blocks: 0,
            index_entries: Vec::new(),
            shared: None,
        }
    }

    /// Sets which prefixes are shared between requests, of blocks of a number of tokens.
    pub fn share_prefixes(&mut self, config: PrefixViewConfig, block_size_tokens: u64) {
        let prefixes = PrefixStore::new(config, block_size_tokens);
        self.shared = Some(Box::new(SharedPrefixes {
            prefixes,
            block_size_tokens,
        }));
    }

    /// Returns a tier's counters.
    pub fn tier(&self, tier: usize) -> &Tier {
        &self.tiers[tier]
    }

    /// Returns the number of tiers.
    pub fn tiers(&self) -> usize {
        self.tiers.len()
    }

    /// Refuses a tier that the store does not have.
    pub fn known_tier(&self, tier: usize) -> Answer<()> {
        if tier < self.tiers.len() {
            return Ok(());
        }
        Err(StoreError::NoSuchTier(self.tiers.len()))
    }

    /// Refuses a request that is not in the trace or whose keys were dropped.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        self.keys.known_request(request)
    }

    /// Returns the number of blocks with a copy on a tier and another copy on a faster tier. Cost: a walk
    /// over all runs.
    pub fn duplicates(&self, tier: usize) -> u64 {
        let on = |id: NodeId, t: usize| self.copy(id, t).state != State::Absent;
        let twice = |id: &NodeId| on(*id, tier) && (0..tier).any(|t| on(*id, t));
        let live = self.live_nodes();
        let blocks = live.iter().copied().filter(twice);
        blocks
            .map(|id| u64::from(self.trie.nodes[id as usize].blocks()))
            .sum()
    }

    /// Returns the number of live runs in the trie, without the root.
    pub fn runs(&self) -> usize {
        self.trie.nodes.len() - self.trie.free_nodes.len() - 1
    }

    fn copy(&self, id: NodeId, tier: usize) -> &Copy {
        &self.trie.copies[id as usize * self.tiers.len() + tier]
    }

    fn copy_mut(&mut self, id: NodeId, tier: usize) -> &mut Copy {
        &mut self.trie.copies[id as usize * self.tiers.len() + tier]
    }

    fn copies_of(&self, id: NodeId) -> &[Copy] {
        let first = id as usize * self.tiers.len();
        &self.trie.copies[first..first + self.tiers.len()]
    }

    fn copies_mut(&mut self, id: NodeId) -> &mut [Copy] {
        let first = id as usize * self.tiers.len();
        &mut self.trie.copies[first..first + self.tiers.len()]
    }

    fn time_spans_mut(&mut self, id: NodeId, tier: usize) -> &mut Vec<TimeSpan> {
        &mut self.trie.time_spans[id as usize * self.tiers.len() + tier]
    }

    fn time_spans_of(&self, id: NodeId) -> &[Vec<TimeSpan>] {
        let first = id as usize * self.tiers.len();
        &self.trie.time_spans[first..first + self.tiers.len()]
    }

    fn run(&self, id: NodeId) -> Run<'_> {
        Run {
            node: &self.trie.nodes[id as usize],
            copies: self.copies_of(id),
            time_spans: self.time_spans_of(id),
        }
    }

    /// Returns true if no tier but `except` has a copy of a run.
    fn only_on(&self, id: NodeId, except: usize) -> bool {
        let mut copies = self.copies_of(id).iter().enumerate();
        copies.all(|(t, copy)| t == except || copy.state == State::Absent)
    }

    /// Returns true if no tier has a copy of a run.
    fn is_gone(&self, id: NodeId) -> bool {
        self.copies_of(id)
            .iter()
            .all(|copy| copy.state == State::Absent)
    }

    fn note_evicted(&mut self, tier: usize, node: NodeId, from: u32, to: u32, now_ns: u64) {
        let owner = self.trie.nodes[node as usize].owner;
        let records = &mut self.records;
        let notify = |key| records.evicted_key(tier, key, now_ns);
        self.keys
            .each_back(owner, BlockRange::new(from, to), notify);
        let blocks = u64::from(to - from);
        self.tiers[tier].evictions += blocks;
        self.records.log_eviction(tier, blocks, now_ns);
    }
}

/// A multiply-rotate hasher: enough for well-spread keys, and identical on every machine.
#[derive(Default)]
pub struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

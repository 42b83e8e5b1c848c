//! The traits of a machine's store, as schedulers, movers, routers and metrics use it: the tree of runs,
//! vLLM's pool, SGLang's tree.
//!
//! Each store implements these traits in its own directory.

use super::check::Violation;
use super::newcomer::{Brought, Entry, Newcomer};
use super::{LeaseBlocks, Order, Part, Reservation, Store, Times};
use crate::error::{Answer, StoreError};
use crate::ids::{HoldId, LeaseId, MoveId};
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::tiers::GPU;

/// Implements methods of a trait by the store's own methods of the same names.
macro_rules! own_methods {
    ($(fn $name:ident($own:ident: $of:ty $(, $what:ident: $kind:ty)*) $(-> $answer:ty)?;)*) => {
        $(
            #[allow(clippy::needless_arbitrary_self_type)]
            fn $name($own: $of $(, $what: $kind)*) $(-> $answer)? {
                Self::$name($own $(, $what)*)
            }
        )*
    };
}

/// Gives access to a store's field `records`.
macro_rules! own_records {
    () => {
        fn records(&self) -> &crate::records::Records {
            &self.records
        }

        fn records_mut(&mut self) -> &mut crate::records::Records {
            &mut self.records
        }
    };
}
pub(crate) use {own_methods, own_records};

/// The GPU's blocks, as a batch uses them.
pub trait BatchStore {
    /// Reserves private blocks for several leases, all or nothing.
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation>;
    /// Returns the number of a lease's blocks that are shared already.
    fn depth(&self, lease: LeaseId) -> Answer<u32>;
    /// Shares a lease's blocks up to block `to`, computed at the given times.
    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()>;
    /// Returns the number of blocks that a reservation gets at once, without any transfer.
    fn spare_blocks(&self) -> u64;

    /// Returns how many of the `tokens` that a step offers a lease's prompt it takes: a state must end where
    /// it can be kept.
    fn chunk(&self, _lease: LeaseId, _computed: u64, _target: u64, tokens: u64) -> Answer<u64> {
        Ok(tokens)
    }

    /// Allocates blocks for a lease up to a number of tokens, of which the first `computed` are computed.
    /// Returns false if free blocks are too few. For stores that allocate by token.
    fn grow_to(&mut self, lease: LeaseId, computed: u64, tokens: u64, now_ns: u64) -> Answer<bool> {
        let lacking = LeaseBlocks::new(lease, tokens.saturating_sub(computed));
        Ok(self.reserve(&[lacking], now_ns)? != Reservation::Refused)
    }

    /// Returns the number of blocks that a lease would take for `_tokens` tokens, for stores that allocate by
    /// token.
    fn lacking_blocks(&self, _lease: LeaseId, _tokens: u64) -> Answer<u64> {
        Ok(0)
    }
}

/// Use of the blocks of a tier: the first four fields sum to its capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierOccupancy {
    /// Unused.
    pub free: u64,
    /// In use by running requests, or by a transfer that reads them.
    pub held: u64,
    /// Kept for reuse, without a user.
    pub cached: u64,
    /// Blocks that a copy is still being written to, and blocks whose write must finish before reuse.
    pub in_flight: u64,
    /// Held blocks that are not shared: open blocks, and blocks still to be computed.
    pub private: u64,
}

/// Blocks that have left a tier so far, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// Evicted for other blocks.
    pub evicted: u64,
    /// Evicted from the tier above, and not taken by this one.
    pub overflowed: u64,
    /// Removed because a block before them was removed.
    pub orphaned: u64,
}

impl EvictionCounts {
    /// Counts of a tier whose blocks leave by eviction alone.
    pub fn of(evicted: u64) -> Self {
        Self {
            evicted,
            ..Self::default()
        }
    }
}

/// The blocks of a machine, as routing, metrics and checks query them.
pub trait MachineStore: BatchStore {
    /// Refuses a request that the trace does not have.
    fn known_request(&self, request: u32) -> Answer<()>;
    /// Returns how many of the first `limit` blocks are found, and how many are ready on the GPU. Changes
    /// nothing.
    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)>;
    /// Returns the use of a tier's blocks.
    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy>;
    /// Returns a tier's eviction counts.
    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts>;
    /// Returns the number of blocks computed twice and merged.
    fn merged_blocks(&self) -> u64 {
        0
    }
    /// Returns the digest and the eviction log.
    fn records(&self) -> &Records;
    /// Returns the digest and the eviction log, to add to.
    fn records_mut(&mut self) -> &mut Records;
    /// Recomputes everything from scratch; the first violated invariant is the error.
    fn check(&self) -> Result<(), Violation>;
}

/// A store that admits requests, for any scheduler.
pub trait BlockStore: MachineStore {
    /// As [`MachineStore::peek`] at a time, after sessions past their time to live are dropped.
    fn find(&mut self, request: u32, limit: u32, _now_ns: u64) -> Answer<(u32, u32)> {
        self.peek(request, limit)
    }

    /// Holds the first `depth` blocks of a request's path.
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId>;

    /// Returns the keys of the requests' blocks, if each block has one key.
    fn block_keys(&self) -> Option<&BlockKeys> {
        None
    }

    /// Returns how many of a request's `found` leading blocks another request's prompt may share; by default all.
    fn shareable_blocks(&self, _request: u32, found: u32) -> u32 {
        found
    }

    /// Counts the prefixes of a prompt of `_prompt_tokens` tokens, after its own first look-up.
    fn count_prefixes(&mut self, _request: u32, _prompt_tokens: u64) {}

    /// Reverts an acquisition whose reservation was refused, without a trace.
    fn abandon(&mut self, lease: LeaseId) -> Answer<()>;

    /// Releases the blocks of a lease.
    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()>;

    /// Discards a request's blocks `[start, end)`. By default does nothing: an engine's own rules decide what
    /// stays cached.
    fn discard(&mut self, _request: u32, _start: u32, _end: u32) -> Answer<()> {
        Ok(())
    }

    /// Returns true if the prompts of two requests have the block at an index in common.
    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool;

    /// Makes a request's first blocks the most recently used; by default nothing, as an engine's own rules do
    /// not.
    fn touch(&mut self, _request: u32, _end: u32) -> Answer<()> {
        Ok(())
    }

    /// Returns this store if it is a tree with lower tiers to move blocks from and to.
    fn tiered(&mut self) -> Option<&mut Store> {
        None
    }

    /// Returns this store if its blocks move between tiers.
    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        None
    }

    /// Returns this store if blocks may be cached below the GPU, in a tree's tiers or an engine's own tier.
    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        None
    }

    /// Returns this store if it copies computed blocks to a lower tier by an engine's rules.
    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        None
    }

    /// Returns this store if it prefetches blocks from an engine's last tier before their request is
    /// admitted.
    fn prefetching(&mut self) -> Option<&mut dyn PrefetchingStore> {
        None
    }

    /// Returns this store if its blocks belong to several cache groups.
    fn groups(&mut self) -> Option<&mut dyn GroupAdmission> {
        None
    }

    /// Returns this store if it keeps tokens of sessions between turns.
    fn sessions(&mut self) -> Option<&mut dyn SessionStore> {
        None
    }

    /// Lets an engine's loops run that wake by the clock, up to a time; by default there are none.
    fn run_loops(&mut self, _now_ns: u64) {}

    /// Drops blocks past their time to live; by default nothing, as an engine's own rules have none.
    fn expire(&mut self, _now_ns: u64) {}
}

/// A store whose blocks move between the GPU and lower tiers.
pub trait MovingStore {
    /// Returns true if there are orders that were not taken yet.
    fn has_orders(&self) -> bool;

    /// Returns the orders issued since the last call, in order of issue.
    fn take_orders(&mut self) -> Vec<Order>;

    /// Records when a move's blocks will be ready; by default ignored, as no decision of an engine depends on
    /// it.
    fn set_times(&mut self, _move: MoveId, _times: Times) -> Answer<()> {
        Ok(())
    }

    /// Makes a move's blocks ready and frees the blocks that it read.
    fn finish_move(&mut self, id: MoveId) -> Answer<()>;

    /// Returns how many blocks of each cache group a move copies, if blocks belong to groups.
    fn blocks_of_move(&self, _move: MoveId) -> Option<&[u64]> {
        None
    }
}

/// A store with tiers below the GPU, a tree's or an engine's; a look-up returns one part per tier.
pub trait LoadingStore: MovingStore {
    /// Returns the parts of a request's first `limit` blocks, all of them found, each on its fastest tier.
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part>;

    /// Protects the first `end` blocks of a request's path on a tier from eviction.
    fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId>;

    /// Ends a `protect`.
    fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()>;

    /// Loads the lease's next blocks, up to `to`, from the tier below into its reserved blocks, once the
    /// moves `after` have finished. Returns the move to the GPU.
    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId>;

    /// Shares the load of blocks that another request is already loading.
    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()>;
}

/// A store that copies computed blocks to a lower tier by an engine's rules.
pub trait OffersComputed {
    /// Notifies the store that a step of these leases has finished: its blocks can be copied now.
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()>;

    /// Returns true if the end of a lease's next step matters: part of its prompt is still to be offered.
    fn is_to_offer(&self, lease: LeaseId) -> bool;
}

/// A store that prefetches blocks from an engine's last tier before their request is admitted.
pub trait PrefetchingStore {
    /// Prefetches the blocks that follow the cached part of a request's first `limit` blocks. Returns how
    /// many were requested.
    fn start_prefetch(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<u32>;

    /// Returns true while blocks of a request are being prefetched.
    fn is_prefetching(&self, request: u32) -> bool;

    /// Ends a request's prefetch with the blocks that have arrived.
    fn stop_prefetch(&mut self, request: u32) -> Answer<()>;
}

/// A store of several cache groups, which allocates a request's blocks and issues its loads in one decision.
pub trait GroupAdmission {
    /// Returns the maximum number of tokens that one step computes.
    fn max_num_batched_tokens(&self) -> u64;

    /// Admits a waiting request with its cached blocks, or changes nothing.
    fn admit(&mut self, asked: &Newcomer, now_ns: u64) -> Answer<Entry>;

    /// Returns what the admission of a lease loads from a lower tier, if there is one. Can be taken once.
    fn brought(&mut self, lease: LeaseId) -> Option<Brought>;
}

/// A store that keeps tokens of sessions between turns, and decides itself which prefixes are shared
/// (simplified accounting).
pub trait SessionStore {
    /// Returns the tokens that a session's last completed turn left here; `None` if no turn of it is known.
    fn session_tokens(&mut self, session: i64, now_ns: u64) -> Option<u64>;

    /// Keeps the tokens of a completed turn for the session's next turn.
    fn complete_turn(&mut self, request: u32, session: i64, tokens: u64, now_ns: u64);
}

/// Refuses every tier but the GPU.
pub(crate) fn gpu_alone(tier: usize) -> Answer<()> {
    if tier == GPU {
        return Ok(());
    }
    Err(StoreError::NoSuchTier(1))
}

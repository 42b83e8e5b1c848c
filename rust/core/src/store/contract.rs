//! What schedulers, movers, routers and metrics ask of any store of a machine: the tree of runs, vLLM's pool, SGLang's tree.
//!
//! Each store implements these traits beside its own code.

use super::check::Violation;
use super::newcomer::{Brought, Entry, Newcomer};
use super::{Order, Part, Reservation, Store, Times};
use crate::error::{Answer, StoreError};
use crate::ids::{HoldId, LeaseId, MoveId};
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::tiers::GPU;

/// Answers these methods of a contract with the store's own ones of the same names.
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
pub(crate) use own_methods;

/// What a batch asks of the blocks of its GPU.
pub trait BatchStore {
    /// Reserves private blocks for several leases, all or nothing.
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Reservation>;
    /// Blocks of a lease that are shared already.
    fn depth(&self, lease: LeaseId) -> Answer<u32>;
    /// Shares a lease's blocks up to `to`, computed at some times.
    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()>;
    /// Blocks that reservations get at once, without sending anything.
    fn spare_blocks(&self) -> u64;

    /// Of the tokens that a lease's prompt could get of a step those that it takes: a state must end where it
    /// can be kept.
    fn chunk(&self, _lease: LeaseId, _computed: u64, _target: u64, tokens: u64) -> Answer<u64> {
        Ok(tokens)
    }

    /// Gives a lease room up to the second number of tokens, of which the first are computed; false where blocks are too
    /// few. For stores that count room in tokens.
    fn grow_to(&mut self, lease: LeaseId, tokens: (u64, u64), now_ns: u64) -> Answer<bool> {
        let lacking = (lease, tokens.1.saturating_sub(tokens.0));
        Ok(self.reserve(&[lacking], now_ns)? != Reservation::Refused)
    }

    /// Blocks that a lease would take for so many tokens, where its room is counted in tokens.
    fn lacking_blocks(&self, _lease: LeaseId, _tokens: u64) -> Answer<u64> {
        Ok(0)
    }
}

/// How the blocks of a tier are used: the first four sum to its capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierOccupancy {
    /// Used by nothing.
    pub free: u64,
    /// Private to running requests.
    pub active: u64,
    /// Shared, whether held or not.
    pub cached: u64,
    /// Being written, or not to be used before a write has ended.
    pub in_flight: u64,
    /// Of the cached blocks those that nobody holds.
    pub evictable: u64,
}

/// Blocks that have left a tier so far, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// Evicted to make room.
    pub evicted: u64,
    /// Evicted from the tier above, and not taken by this one.
    pub overflowed: u64,
    /// Gone because the blocks that they follow went.
    pub orphaned: u64,
}

/// The blocks of a machine: what routing, metrics and checks ask beyond what a batch does.
pub trait MachineStore: BatchStore {
    /// Refuses a request that the trace does not have.
    fn known_request(&self, request: u32) -> Answer<()>;
    /// How many of the first `limit` blocks are found, and how many are ready on the GPU; changes nothing.
    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)>;
    /// How a tier's blocks are used.
    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy>;
    /// What a tier has lost.
    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts>;
    /// Blocks computed twice and merged.
    fn merged_blocks(&self) -> u64;
    /// The digest and the evictions.
    fn records(&self) -> &Records;
    /// The same, to add to.
    fn records_mut(&mut self) -> &mut Records;
    /// Recomputes everything from scratch; the first violated invariant is the error.
    fn check(&self) -> Result<(), Violation>;
}

/// A store that requests are admitted to, by whichever scheduler.
pub trait BlockStore: MachineStore {
    /// As [`MachineStore::peek`] at a time, once the sessions are gone whose time to live is over.
    fn find(&mut self, request: u32, limit: u32, _now_ns: u64) -> Answer<(u32, u32)> {
        self.peek(request, limit)
    }

    /// Holds the first `depth` blocks of a request's path.
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId>;

    /// What names the blocks of requests, where each block has one key.
    fn block_keys(&self) -> Option<&BlockKeys> {
        None
    }

    /// Takes an acquisition back that was refused room, without a trace.
    fn abandon(&mut self, lease: LeaseId) -> Answer<()>;

    /// Gives up what a lease holds.
    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()>;

    /// Lets go of a request's blocks from `start` up to `end`; an engine's own rules keep what has room.
    fn discard(&mut self, _request: u32, _start: u32, _end: u32) -> Answer<()> {
        Ok(())
    }

    /// Whether the prompts of two requests have a block in common, at that index.
    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool;

    /// Makes a request's first blocks the most recently used; an engine's own rules do not.
    fn touch(&mut self, _request: u32, _end: u32) -> Answer<()> {
        Ok(())
    }

    /// The same store where it is a tree with lower tiers to move blocks from and to.
    fn tiered(&mut self) -> Option<&mut Store> {
        None
    }

    /// The same store where its blocks move between tiers.
    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        None
    }

    /// The same store where blocks may lie below the GPU: a tree's, or an engine's with a tier of its own.
    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        None
    }

    /// The same store where it copies down what steps compute by an engine's rules.
    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        None
    }

    /// The same store where it brings blocks up from an engine's last tier before their request is admitted.
    fn prefetching(&mut self) -> Option<&mut dyn PrefetchingStore> {
        None
    }

    /// The same store where its blocks are of several cache groups.
    fn groups(&mut self) -> Option<&mut dyn GroupAdmission> {
        None
    }

    /// The same store where it keeps what the turns of sessions leave.
    fn sessions(&mut self) -> Option<&mut dyn SessionStore> {
        None
    }

    /// Lets go of what has outlived its time to live; an engine's own rules know none.
    fn expire(&mut self, _now_ns: u64) {}
}

/// A store whose blocks move between the GPU and what lies below.
pub trait MovingStore {
    /// Whether transmissions were decided since they were last taken.
    fn has_orders(&self) -> bool;

    /// The transmissions decided since the last call, in the order of decision.
    fn take_orders(&mut self) -> Vec<Order>;

    /// Hears when what a move writes will be there; no decision of an engine's depends on it.
    fn set_times(&mut self, _move: MoveId, _times: Times) -> Answer<()> {
        Ok(())
    }

    /// Makes a move's blocks ready, and its room free.
    fn finish_move(&mut self, id: MoveId) -> Answer<()>;

    /// How many blocks of each cache group a move copies, where blocks are of groups.
    fn blocks_of_move(&self, _move: MoveId) -> Option<&[u64]> {
        None
    }
}

/// A store with blocks below the GPU, found in parts: a tree's tiers, or those of an engine.
pub trait LoadingStore: MovingStore {
    /// Where a request's first `limit` blocks, all of them found, lie: each on its fastest tier.
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part>;

    /// Protects the first `end` blocks of a request's path on a tier while room is made.
    fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId>;

    /// Ends a `protect`.
    fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()>;

    /// Lets the lease read its next blocks, up to `to`, from below into blocks that it has reserved, once these moves
    /// have ended; the move to the GPU.
    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId>;

    /// Holds on to blocks that another request is already loading.
    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()>;
}

/// A store that copies down what steps have computed by an engine's rules.
pub trait OffersComputed {
    /// Hears that a step of these leases has ended: what it computed can be copied now.
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()>;

    /// Whether the end of a lease's next step matters: something of its prompt is still to be offered.
    fn is_to_offer(&self, lease: LeaseId) -> bool;
}

/// A store that brings blocks up from an engine's last tier before their request is admitted.
pub trait PrefetchingStore {
    /// Brings up what follows the known part of a request's first `limit` blocks; how many were asked for.
    fn start_prefetch(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<u32>;

    /// Whether blocks of a request are still to come.
    fn is_prefetching(&self, request: u32) -> bool;

    /// Ends a request's prefetch with what has come.
    fn stop_prefetch(&mut self, request: u32) -> Answer<()>;
}

/// A store of several cache groups, which decides on a request's room and its loads in one.
pub trait GroupAdmission {
    /// Most tokens that one step computes.
    fn max_num_batched_tokens(&self) -> u64;

    /// Admits a waiting request with what is cached of it, or changes nothing.
    fn admit(&mut self, asked: &Newcomer, now_ns: u64) -> Answer<Entry>;

    /// What the admission of a lease brings from a tier below, where there is one; asked for once.
    fn brought(&mut self, lease: LeaseId) -> Option<Brought>;
}

/// A store that keeps what the turns of sessions leave, and decides itself which prefixes are shared (simplified
/// accounting).
pub trait SessionStore {
    /// Tokens that a session's last completed turn left here, `None` where no turn of it is known.
    fn session_tokens(&mut self, session: i64, now_ns: u64) -> Option<u64>;

    /// Counts the prefixes of a prompt that is admitted for the first time.
    fn observe(&mut self, request: u32, prompt_tokens: u64);

    /// Keeps the tokens of a completed turn for the session's next one.
    fn complete_turn(&mut self, request: u32, session: i64, tokens: u64, now_ns: u64);
}

/// Refuses every tier but the GPU.
pub(crate) fn gpu_alone(tier: usize) -> Answer<()> {
    if tier == GPU {
        return Ok(());
    }
    Err(StoreError::NoSuchTier(1))
}

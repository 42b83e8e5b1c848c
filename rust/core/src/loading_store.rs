//! What is asked of a store whose blocks may lie below the GPU: they are found in parts, loaded part by part, and
//! moved by transmissions.

use crate::store::{Answer, HoldId, LeaseId, MoveId, Order, Part, Store, Times};

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

impl LoadingStore for Store {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        Store::match_prefix(self, request, limit)
    }

    fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId> {
        Store::protect(self, request, end, tier)
    }

    fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()> {
        Store::unprotect(self, tier, hold)
    }

    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        Store::load(self, lease, to, after)
    }

    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        Store::join(self, lease, to)
    }
}

impl MovingStore for Store {
    fn has_orders(&self) -> bool {
        Store::has_orders(self)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        Store::take_orders(self)
    }

    fn set_times(&mut self, id: MoveId, times: Times) -> Answer<()> {
        Store::set_times(self, id, times)
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        Store::finish_move(self, id)
    }
}

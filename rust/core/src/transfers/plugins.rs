//! Decisions of a machine's transfers that a plug-in takes, and what the plug-in sees.

use std::fmt::Debug;

use crate::store::{Answer, LeaseId, MoveId, Store};

/// A transfer that is about to be queued, as a channel choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Its blocks.
    pub blocks: u64,
    /// Its bytes.
    pub size_bytes: u64,
    /// Now.
    pub now_ns: u64,
}

/// The choice of a plug-in among the channels that carry an edge in one direction.
pub trait ChannelPlugin: Debug + Send + Sync {
    /// Returns the index of the channel that a transfer takes, in the scenario's order.
    fn choose(&self, sending: &Sending) -> Answer<usize>;
}

/// The write policy of a plug-in on one edge; it may change the store by any of the store's own calls.
pub trait WritePlugin: Debug + Send + Sync {
    /// Blocks [start, end) of a lease were computed and are shared now; returns the move that copies them, if one does.
    fn committed(
        &mut self,
        store: &mut Store,
        lease: LeaseId,
        blocks: (u32, u32),
        now_ns: u64,
    ) -> Answer<Option<MoveId>>;

    /// A request was admitted and holds what it reuses.
    fn used(&mut self, store: &mut Store, lease: LeaseId, now_ns: u64) -> Answer<()>;

    /// A copy is about to become ready on the upper tier of the edge.
    fn arrived(&mut self, store: &mut Store, id: MoveId, now_ns: u64) -> Answer<()>;
}

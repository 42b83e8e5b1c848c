//! Plug-ins for decisions of a machine's transfers, and their inputs.

use std::fmt::Debug;

use crate::ids::BlockRange;
use crate::store::{Answer, LeaseId, MoveId, Store};

/// A transfer about to be queued, as input of a channel choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Its blocks.
    pub blocks: u64,
    /// Its bytes.
    pub size_bytes: u64,
    /// The current time.
    pub now_ns: u64,
}

/// A plug-in that chooses among the channels of an edge in one direction.
pub trait ChannelPlugin: Debug + Send + Sync {
    /// Returns the index of the channel that a transfer takes, in the scenario's order.
    fn choose(&self, sending: &Sending) -> Answer<usize>;
}

/// A plug-in's write policy of one edge; it may change the store by any of the store's own calls.
pub trait WritePlugin: Debug + Send + Sync {
    /// Called when blocks of a lease were computed and are shared; returns the move that copies
    /// them, if any.
    fn committed(
        &mut self,
        store: &mut Store,
        lease: LeaseId,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<Option<MoveId>>;

    /// Called when a request was admitted and holds its reused blocks.
    fn used(&mut self, store: &mut Store, lease: LeaseId, now_ns: u64) -> Answer<()>;

    /// Called when a copy is about to become ready on the upper tier of the edge.
    fn arrived(&mut self, store: &mut Store, id: MoveId, now_ns: u64) -> Answer<()>;
}

//! Reserved blocks that are free only when a move finishes.

use crate::ids::{LeaseId, MoveId};

/// Blocks that a move frees when it finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingFree {
    /// The move.
    pub id: MoveId,
    /// Number of blocks.
    pub blocks: u64,
}

/// GPU blocks that a move frees when it finishes; a lease has reserved them in advance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub lease: LeaseId,
    pub blocks: u64,
}

/// Returns the moves of pending blocks.
pub(super) fn moves_of(pending: &[PendingFree]) -> Vec<MoveId> {
    pending.iter().map(|part| part.id).collect()
}

/// Returns the number of pending blocks.
pub(super) fn blocks_of(pending: &[PendingFree]) -> u64 {
    pending.iter().map(|part| part.blocks).sum()
}

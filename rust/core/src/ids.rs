//! Handles and indices, as integers.

/// The handle of a lease ([`crate::store::Slots`]).
pub type LeaseId = u64;
/// The handle of a move ([`crate::store::Slots`]); of two moves of a store the later one has the larger.
pub type MoveId = u64;
/// No move: a copy that is ready. Never a handle.
pub const NO_MOVE: MoveId = u32::MAX as u64;
/// The handle of a hold ([`crate::store::Store::protect`]).
pub type HoldId = u64;

/// Consecutive blocks of a request, by their positions in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub start: u32,
    /// The block after the last one.
    pub end: u32,
}

/// Index of a node in the arena of a trie. A split gives the upper part a new id, so stored ids still name the same
/// last block.
pub type NodeId = u32;
/// The node above all others: no block.
pub const ROOT: NodeId = 0;
/// No node, no run, no block, no request: an index that names nothing.
pub const NONE: u32 = u32::MAX;

//! Handles and indices, as integers; ranges of them.

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

impl BlockRange {
    /// Returns blocks [start, end).
    pub fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> u32 {
        self.end - self.start
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// Index of a node in the arena of a trie. A split gives the upper part a new id, so stored ids still name the same
/// last block.
pub type NodeId = u32;
/// The node above all others: no block.
pub const ROOT: NodeId = 0;
/// No node, no run, no block, no request: an index that names nothing.
pub const NONE: u32 = u32::MAX;

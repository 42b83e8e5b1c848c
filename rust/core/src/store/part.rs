//! Consecutive blocks of a path on one tier, as look-ups report them.

use crate::ids::{BlockRange, MoveId};

/// Consecutive blocks of a request's path that are found on one tier in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The tier, 0 is the GPU.
    pub tier: usize,
    /// Its first block.
    pub start: u32,
    /// One past its last block.
    pub end: u32,
    /// The move that is still writing it, or [`NO_MOVE`] if it is ready.
    pub by: MoveId,
}

impl Part {
    /// Returns blocks on a tier, written by a move or ready ([`NO_MOVE`]).
    pub(crate) fn of(tier: usize, by: MoveId, blocks: BlockRange) -> Self {
        Self {
            tier,
            start: blocks.start,
            end: blocks.end,
            by,
        }
    }

    /// Returns its blocks.
    pub fn blocks(&self) -> BlockRange {
        BlockRange::new(self.start, self.end)
    }
}

/// Appends a part, extending the last one if that is on its tier in its state.
pub(crate) fn add_part(parts: &mut Vec<Part>, next: Part) {
    match parts.last_mut() {
        Some(last) if last.tier == next.tier && last.by == next.by => last.end = next.end,
        _ => parts.push(next),
    }
}

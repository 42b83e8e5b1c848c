//! Blocks of one request in one group.

use crate::convert::fit;
use std::collections::VecDeque;

/// A table that begins with positions whose blocks were released.
#[derive(Debug, Default, Clone)]
pub struct Table {
    /// Leading positions without a block.
    pub start: u32,
    /// Blocks from `start` on; a group of states has `NULL` between them.
    pub blocks: VecDeque<u32>,
    /// Leading positions that have been through the key step.
    pub keyed: u32,
}

impl Table {
    /// Returns the number of positions.
    pub fn positions(&self) -> u32 {
        self.start + fit::<u32>(self.blocks.len())
    }

    /// Returns the block of a position, which must not be before `start`.
    pub fn block(&self, position: u32) -> u32 {
        self.blocks[(position - self.start) as usize]
    }
}

//! The blocks of one request in one group.

use std::collections::VecDeque;

/// A table that begins with positions whose blocks are gone.
#[derive(Debug, Default, Clone)]
pub struct Table {
    /// Leading positions without a block.
    pub start: u32,
    /// Blocks from there on; a group of states has `NULL` between them.
    pub blocks: VecDeque<u32>,
    /// Leading positions that have been through the key step.
    pub keyed: u32,
}

impl Table {
    /// How many positions it has.
    pub fn positions(&self) -> u32 {
        self.start + self.blocks.len() as u32
    }

    /// The block of a position that is not before `start`.
    pub fn block(&self, position: u32) -> u32 {
        self.blocks[(position - self.start) as usize]
    }
}

//! The blocks of prompts that are still to be offered to the tier.

/// A block of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupSlot {
    /// Its cache group.
    pub group: usize,
    /// Its position there.
    pub block: u32,
}

impl GroupSlot {
    /// Returns a block of a cache group.
    pub fn new(group: usize, block: u32) -> Self {
        Self { group, block }
    }
}

/// A block of the pool, with its position in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    pub slot: GroupSlot,
    pub block: u32,
    /// True if its chunk is not offered without it.
    pub is_needed: bool,
}

/// Prompt blocks of a running request that are still to be offered.
#[derive(Debug, Clone)]
pub(super) struct ToOffer {
    /// For each group, the first block that was not offered yet.
    pub starts: Vec<u32>,
    /// Blocks of a refused offer, and those of chunks that are not complete. Under vLLM's rules a block that has left a
    /// window stays among them until it is allocated again.
    pub refused: Vec<Held>,
    pub begun: Vec<Held>,
}

impl From<Vec<u32>> for ToOffer {
    /// All blocks of each group from a first one on.
    fn from(starts: Vec<u32>) -> Self {
        Self {
            starts,
            refused: Vec::new(),
            begun: Vec::new(),
        }
    }
}

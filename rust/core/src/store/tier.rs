//! A tier: its room, and its eviction candidates in order.

use std::collections::BTreeSet;

use super::reserve::{blocks_of, PendingFrees};
use crate::ids::{MoveId, NodeId};

/// Room of a tier that has no bound.
const UNBOUNDED: u64 = 1 << 60;

/// How a tier is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierConfig {
    /// Blocks it holds; `None` has no bound.
    pub capacity_blocks: Option<u64>,
    /// Whether a victim without a copy below is written there before it goes (else it is discarded).
    pub write_back: bool,
}

/// Room and candidates. `free + active + cached + in_flight = capacity`.
#[derive(Debug, Default)]
pub struct Tier {
    /// Blocks it holds at most.
    pub capacity: u64,
    /// Blocks of room that nobody uses.
    pub free: u64,
    /// Reserved by requests, not shared.
    pub active: u64,
    /// Ready copies.
    pub cached: u64,
    /// Room of copies being written, and room of victims until they are written down.
    pub in_flight: u64,
    /// Cached blocks that nobody holds.
    pub evictable: u64,
    /// Blocks evicted so far.
    pub evictions: u64,
    /// Evicted to nowhere because the tier below could not take them.
    pub overflowed: u64,
    /// Discarded because a block before them was.
    pub orphaned: u64,
    pub(super) write_back: bool,
    /// Of `in_flight`, room of victims that nobody has asked for yet: free when these moves end, the oldest first.
    pub(super) coming: PendingFrees,
    /// (access, deepest first, node): the front goes first.
    pub(super) candidates: BTreeSet<(u64, u32, NodeId)>,
}

impl Tier {
    pub(super) fn new(config: &TierConfig) -> Self {
        let capacity = config.capacity_blocks.unwrap_or(UNBOUNDED);
        Self {
            capacity,
            free: capacity,
            write_back: config.write_back,
            ..Self::default()
        }
    }

    /// Blocks that a reservation can get at most.
    pub fn available(&self) -> u64 {
        self.free + self.evictable + blocks_of(&self.coming)
    }

    /// Takes so many blocks of the room that nobody has asked for, of what comes first.
    pub(super) fn take_coming(&mut self, blocks: u64) -> PendingFrees {
        self.in_flight -= blocks;
        if blocks == blocks_of(&self.coming) {
            return std::mem::take(&mut self.coming);
        }
        let (mut taken, mut left) = (PendingFrees::new(), blocks);
        for (mv, open) in &mut self.coming {
            let take = left.min(*open);
            taken.push((*mv, take));
            (left, *open) = (left - take, *open - take);
        }
        self.coming.retain(|freeing_moves| freeing_moves.1 > 0);
        taken.retain(|freeing_moves| freeing_moves.1 > 0);
        taken
    }

    /// A move has ended: what nobody has asked for of the room that it frees is free.
    pub(super) fn came(&mut self, id: MoveId) {
        if self.coming.is_empty() {
            return;
        }
        let ended = self
            .coming
            .iter()
            .filter(|freeing_moves| freeing_moves.0 == id);
        let blocks: u64 = ended.map(|freeing_moves| freeing_moves.1).sum();
        self.coming.retain(|freeing_moves| freeing_moves.0 != id);
        self.in_flight -= blocks;
        self.free += blocks;
    }
}

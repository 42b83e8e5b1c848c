//! A tier: its capacity, and its eviction candidates in order.

use std::collections::{BTreeSet, VecDeque};

use super::backlog::Backlog;
use super::pending::{blocks_of, PendingFree};
use crate::ids::{MoveId, NodeId};

/// Capacity of an unbounded tier.
pub const UNBOUNDED: u64 = 1 << 60;

/// Configuration of a tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierConfig {
    /// Capacity in blocks; `None` is unbounded.
    pub capacity_blocks: Option<u64>,
    /// True if a victim without a copy below is written there before it is removed; otherwise it is
    /// discarded.
    pub write_back: bool,
}

/// Block counts and candidates. `free + active + cached + in_flight = capacity`.
#[derive(Debug, Default)]
pub struct Tier {
    /// Maximum number of blocks.
    pub capacity: u64,
    /// Unused blocks.
    pub free: u64,
    /// Blocks reserved by requests, not shared.
    pub active: u64,
    /// Blocks with ready copies.
    pub cached: u64,
    /// Blocks being written, and blocks of victims until these are written down.
    pub in_flight: u64,
    /// Cached blocks without holders.
    pub evictable: u64,
    /// Blocks evicted so far.
    pub evictions: u64,
    /// Blocks dropped because the tier below could not take them.
    pub overflowed: u64,
    /// Blocks discarded because a block before them was.
    pub orphaned: u64,
    pub(super) write_back: bool,
    /// Part of `in_flight`: blocks of victims that no request has reserved; each is free when its move
    /// finishes, oldest first.
    pub(super) coming: Vec<PendingFree>,
    /// Victims of the tier above that wait for blocks, first come, first served.
    pub(super) backlogs: VecDeque<Backlog>,
    /// (access, deepest first, node), next victim first.
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

    /// Returns the maximum number of blocks that a reservation can get.
    pub fn available(&self) -> u64 {
        self.free + self.evictable + blocks_of(&self.coming)
    }

    /// Takes unreserved blocks that moves are freeing, earliest first.
    pub(super) fn take_coming(&mut self, blocks: u64) -> Vec<PendingFree> {
        self.in_flight -= blocks;
        if blocks == blocks_of(&self.coming) {
            return std::mem::take(&mut self.coming);
        }
        let (mut taken, mut left) = (Vec::new(), blocks);
        for pending in &mut self.coming {
            let take = left.min(pending.blocks);
            taken.push(PendingFree {
                id: pending.id,
                blocks: take,
            });
            (left, pending.blocks) = (left - take, pending.blocks - take);
        }
        self.coming.retain(|pending| pending.blocks > 0);
        taken.retain(|pending| pending.blocks > 0);
        taken
    }

    /// Frees the unreserved blocks of a move that has finished.
    pub(super) fn came(&mut self, id: MoveId) {
        if self.coming.is_empty() {
            return;
        }
        let ended = self.coming.iter().filter(|pending| pending.id == id);
        let blocks: u64 = ended.map(|pending| pending.blocks).sum();
        self.coming.retain(|pending| pending.id != id);
        self.in_flight -= blocks;
        self.free += blocks;
    }
}

//! A node: a run of blocks that no request parts, uniform on every tier.

use super::moves::{MoveId, NO_MOVE};
use super::MAX_TIERS;

/// Index of a node in the arena. A split gives the upper part a new id, so ids held elsewhere go on naming
/// the same last block.
pub type NodeId = u32;
pub const ROOT: NodeId = 0;
pub const NONE: NodeId = u32::MAX;

/// Whether a run has a copy on a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Absent,
    /// Found but not ready: being written by a move.
    InFlight,
    Ready,
}

/// A run's copy on one tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copy {
    pub state: State,
    /// The move that writes it while it is in flight.
    pub by: MoveId,
    /// Holders of this run or of one below it, on this tier.
    pub holds: u32,
    /// Children with a copy on this tier.
    pub children: u32,
    /// Recency: the access counter at the last release, or admission ([`super::Touch`]).
    pub access: u64,
    /// What this copy adds to the tier's evictable blocks.
    pub evictable: u32,
    /// Its place among the tier's candidates: (access, last block).
    pub listed: Option<(u64, u32)>,
}

/// A run of blocks `[start, end)` of the path of request `owner`.
#[derive(Clone, Debug)]
pub struct Node {
    pub parent: NodeId,
    pub owner: u32,
    pub start: u32,
    pub end: u32,
    pub first_child: NodeId,
    pub next: NodeId,
    pub previous: NodeId,
    /// Holders on any tier: a pinned run never loses its last copy.
    pub pins: u32,
    /// How many requests have computed, reused or loaded it.
    pub uses: u32,
    pub copies: [Copy; MAX_TIERS],
}

impl Node {
    pub fn root() -> Self {
        Self::new(NONE, 0, 0, 0)
    }

    pub fn new(parent: NodeId, owner: u32, start: u32, end: u32) -> Self {
        let copy = Copy {
            by: NO_MOVE,
            ..Copy::default()
        };
        Self {
            parent,
            owner,
            start,
            end,
            first_child: NONE,
            next: NONE,
            previous: NONE,
            pins: 0,
            uses: 0,
            copies: [copy; MAX_TIERS],
        }
    }

    pub fn blocks(&self) -> u32 {
        self.end - self.start
    }

    /// Whether no tier but `except` has a copy.
    pub fn only_on(&self, except: usize) -> bool {
        (0..MAX_TIERS).all(|t| t == except || self.copies[t].state == State::Absent)
    }

    /// The fastest tier with a copy, ready or not.
    pub fn fastest(&self) -> Option<usize> {
        (0..MAX_TIERS).find(|&t| self.copies[t].state != State::Absent)
    }
}

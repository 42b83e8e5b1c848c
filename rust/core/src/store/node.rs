//! A node: a run of blocks without a branch, uniform on every tier but for the ready times of its blocks.

use super::ready::{TimeSpan, Times};
use crate::ids::{MoveId, NodeId, NONE, NO_MOVE};

/// State of a run's copy on a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No copy.
    #[default]
    Absent,
    /// Not found: it waits for a block of the tier ([`super::backlog`]).
    Waiting,
    /// Found but not ready: being written by a move.
    InFlight,
    /// Ready to use.
    Ready,
}

impl State {
    /// Returns true if the copy occupies a block of the tier.
    pub fn is_resident(self) -> bool {
        matches!(self, Self::InFlight | Self::Ready)
    }
}

/// A run's copy on one tier. All copies lie in one vector: one per node and tier.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub state: State,
    /// Holds of this run or of a run below it, on this tier.
    pub holds: u32,
    /// Children with a copy on this tier.
    pub children: u32,
    /// Blocks that this copy adds to the tier's evictable blocks.
    pub evictable: u32,
    /// Its entry in the tier's candidates: access and last block; the block is 0 if it is not listed.
    pub listed: (u64, u32),
    /// The move that writes it while it is in flight.
    pub by: MoveId,
    /// Recency: the access counter at the last release, or admission ([`super::Touch`]).
    pub access: u64,
    /// Ready times; while the copy is in flight they are in its move.
    pub times: Times,
}

impl Default for Copy {
    fn default() -> Self {
        Self {
            state: State::Absent,
            holds: 0,
            children: 0,
            evictable: 0,
            listed: (0, 0),
            by: NO_MOVE,
            access: 0,
            times: Times::default(),
        }
    }
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
    /// Holds on all tiers: a pinned run never loses its last copy.
    pub pins: u32,
    /// Number of requests that have computed, reused or loaded it.
    pub uses: u32,
}

impl Node {
    pub fn root() -> Self {
        Self::new(NONE, 0, 0, 0)
    }

    pub fn new(parent: NodeId, owner: u32, start: u32, end: u32) -> Self {
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
        }
    }

    pub fn blocks(&self) -> u32 {
        self.end - self.start
    }
}

/// Runs of a path: from the run that starts at block `start` to run `tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPart {
    /// The last run.
    pub tail: NodeId,
    /// The first block.
    pub start: u32,
}

/// A run as seen by a walk.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub node: &'a Node,
    /// Copies by tier.
    pub copies: &'a [Copy],
    /// By tier: leading blocks that were ready at other times than the copy's last blocks.
    pub time_spans: &'a [Vec<TimeSpan>],
}

impl Run<'_> {
    /// Returns the fastest tier with a copy, ready or not; `None` without one, or if that copy waits.
    pub fn fastest(&self) -> Option<usize> {
        let fastest = self.copies.iter().position(|c| c.state != State::Absent);
        fastest.filter(|&tier| self.copies[tier].state != State::Waiting)
    }
}

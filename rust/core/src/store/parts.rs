//! The parts of a store that are more than one table: its trie, its clock, its eviction rules.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::node::{Copy, Node};
use super::orders::Orders;
use super::ready::TimeSpan;
use super::times::MANY_ACCESSES;
use super::{NodeId, Overflow, PairHasher, Touch};

/// Children by (parent, key of the child's first block). Looked up, never iterated.
type Children = HashMap<(NodeId, u64), NodeId, BuildHasherDefault<PairHasher>>;

/// The runs of blocks and their copies.
#[derive(Debug)]
pub(super) struct Trie {
    pub nodes: Vec<Node>,
    /// Copies by node: one per tier.
    pub copies: Vec<Copy>,
    /// By copy: leading blocks that were ready at other times than the copy's last blocks.
    pub time_spans: Vec<Vec<TimeSpan>>,
    /// Runs that may be mergeable with a neighbor.
    pub loose: Vec<NodeId>,
    pub free_nodes: Vec<NodeId>,
    /// Runs in the trie without a copy on any tier; a reader's pin below such a run keeps it.
    pub gone: usize,
    pub children: Children,
}

impl Trie {
    /// An empty trie over a number of tiers: the root alone.
    pub fn new(tiers: usize) -> Self {
        Self {
            nodes: vec![Node::root()],
            copies: vec![Copy::default(); tiers],
            time_spans: vec![Vec::new(); tiers],
            loose: Vec::new(),
            free_nodes: Vec::new(),
            gone: 0,
            children: Children::default(),
        }
    }
}

/// The store's time, and the recency counter with the times of its counts.
#[derive(Debug)]
pub(super) struct Clock {
    /// Recency counter: raised by one at each admission and release, never by the clock, so no two leases
    /// tie.
    pub access: u64,
    /// Time of each count of `access`, from `accessed_from` on.
    pub accessed_ns: Vec<u64>,
    pub accessed_from: u64,
    /// Number of recorded accesses at which unreferenced ones are dropped.
    pub accessed_limit: usize,
    /// The latest time that a caller passed.
    pub now_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            access: 0,
            accessed_ns: vec![0],
            accessed_from: 0,
            accessed_limit: MANY_ACCESSES,
            now_ns: 0,
        }
    }
}

/// Settings of recency and eviction, and the eviction orders that they need.
#[derive(Debug)]
pub(super) struct EvictionRules {
    pub touch: Touch,
    /// Minimum number of blocks evicted at once.
    pub batch_blocks: u64,
    pub overflow: Overflow,
    /// True if a victim that any lower tier has is not written again.
    pub write_once: bool,
    /// Eviction orders of the tiers that do not use recency.
    pub orders: Option<Box<Orders>>,
}

impl Default for EvictionRules {
    fn default() -> Self {
        Self {
            touch: Touch::default(),
            batch_blocks: 1,
            overflow: Overflow::Wait,
            write_once: false,
            orders: None,
        }
    }
}

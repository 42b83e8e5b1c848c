//! HiCache's host: its capacity, the time at which nodes are written to it, and counts of its moves.

use std::collections::BTreeMap;

use super::host_changes::HostChanges;
use super::stored_pages::Storage;
use crate::names::named_values;

named_values! {
    /// Time at which a node is written to the host (SGLang's `hicache_write_policy`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WritePolicy {
        /// Writes a node at its first hit.
        Through = "write_through",
        /// Writes a node at its second hit.
        Selective = "write_through_selective",
        /// Writes a node when it leaves the device.
        Back = "write_back",
    }
}

impl WritePolicy {
    /// Returns the hits at which a node is written; None: hits are not counted.
    pub(super) fn threshold(self) -> Option<u64> {
        match self {
            Self::Through => Some(1),
            Self::Selective => Some(2),
            Self::Back => None,
        }
    }
}

/// Host capacity, and the nodes that are on both tiers.
#[derive(Debug)]
pub struct HostTier {
    pub(super) write: WritePolicy,
    /// Capacity in pages.
    pub(super) capacity_pages: u64,
    /// Nodes on both tiers, in the order of their registration; only under write-back.
    pub(super) duplicates: BTreeMap<u64, u32>,
    pub(super) registered: u64,
    /// Pages that prefetches from a storage will fill.
    pub(super) reserved_pages: u64,
    /// True if a node written as it leaves the device stays on the host until a storage has it.
    pub(super) keeps_written: bool,
    /// Storage below the host, if any.
    pub(super) storage: Option<Storage>,
    /// Changes for a timed store, if used by one.
    pub(super) host_changes: Option<HostChanges>,
    /// Counts of pages moved.
    pub moved: HostMoves,
}

/// A node whose host copy is needed, with the number of pages that end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLock {
    /// The node.
    pub node: u32,
    /// The pages.
    pub pages: u32,
}

/// Counts of pages written to the host and evicted from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostMoves {
    /// Pages written.
    pub written_pages: u64,
    /// Pages of host leaves evicted.
    pub evicted_pages: u64,
    /// Host leaves evicted.
    pub evicted_leaves: u64,
}

impl HostTier {
    /// An empty host tier of `capacity_pages`.
    pub fn new(write: WritePolicy, capacity_pages: u64) -> Self {
        Self {
            write,
            capacity_pages,
            duplicates: BTreeMap::new(),
            registered: 0,
            reserved_pages: 0,
            keeps_written: false,
            storage: None,
            host_changes: None,
            moved: HostMoves::default(),
        }
    }

    /// Adds the log of writes that a timed store reads.
    pub fn in_time(self) -> Self {
        Self {
            host_changes: Some(HostChanges::default()),
            ..self
        }
    }

    /// Adds a storage below the tier.
    pub fn above(self, storage: Option<Storage>) -> Self {
        Self { storage, ..self }
    }
}

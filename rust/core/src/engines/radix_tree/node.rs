//! A node of the tree: a run of pages, and its usage.

use crate::ids::BlockRange;

/// Root, which is never evicted.
pub const ROOT: u32 = 0;

/// Usage of a node; times are values of the tree's counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// Time of the last walk.
    pub last_access: u64,
    /// Time of creation.
    pub creation: u64,
    /// Creation time of the first node at this position among its parent's children.
    pub slot: u64,
    /// Number of requests that found the node.
    pub hit_count: u64,
}

impl NodeUse {
    /// Usage of a node created now.
    pub fn new(now: u64) -> Self {
        Self {
            last_access: now,
            creation: now,
            slot: now,
            hit_count: 0,
        }
    }
}

/// Pages `[start, start + pages)` of a request, below the parent's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub request: u32,
    pub start: u32,
    pub pages: u32,
    pub parent: u32,
    pub children: u32,
    pub device_children: u32,
    pub locks: u32,
    /// Copies to or from a storage that need the host's copy.
    pub host_locks: u32,
    pub on_device: bool,
    pub on_host: bool,
    pub used: NodeUse,
    pub priority: u64,
    /// End of the deepest page that was ever inserted at or below the node.
    pub history: u32,
    /// Sequence number among nodes on both tiers, 0 for nodes that are not on both.
    pub duplicate: u64,
}

impl Node {
    /// A new node with pages of a request, without a copy on any tier.
    pub fn new(request: u32, blocks: BlockRange, parent: u32, now: u64) -> Self {
        Self {
            request,
            start: blocks.start,
            pages: blocks.len(),
            parent,
            children: 0,
            device_children: 0,
            locks: 0,
            host_locks: 0,
            on_device: false,
            on_host: false,
            used: NodeUse::new(now),
            priority: 0,
            history: blocks.end,
            duplicate: 0,
        }
    }
}

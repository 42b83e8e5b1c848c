//! SGLang's radix trees (0.5.23), counted in pages: the classic one (`srt/mem_cache/radix_cache.py`) and the
//! default one (`UnifiedRadixCache` on `UnifiedTreeCore`, full attention alone). `TreeRules` has their
//! differences.
//!
//! A node is a run of pages, identified by a request that shows it; no page ids are copied. It may be on the device,
//! on the host (HiCache) or on both; nodes without a device copy form the bottom of every path. Each walk gets one
//! timestamp from a counter. At most one node of a path is an evictable leaf, so its nodes can share the timestamp.
//! `evict` frees the device; `host` writes, loads and frees the host.

mod accounts;
mod check;
mod evict;
/// Copies on the host (HiCache).
mod host;
mod host_changes;
/// Host capacity, and what was written to it.
pub mod host_tier;
/// Host changes that a timed store reads.
mod in_time;
/// Look-ups that change nothing.
mod look;
mod node;
mod storage;
/// Pages in a storage below the host.
pub mod stored_pages;
/// Strategies that order leaves.
pub mod worth;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key_index::KeyMap;
use crate::causes::eviction_log::EvictionLog;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use host_tier::HostTier;
use node::Node;
use worth::LeafStrategy;

pub use host_changes::Written;
pub use node::ROOT;

/// Rules of one of SGLang's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeRules {
    /// `RadixCache`: the upper part of a split node gets a new creation time.
    Classic,
    /// `UnifiedRadixCache`: the upper part of a split node keeps the creation time.
    Unified,
}

/// Current contents of the tree, and its evictions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeCounts {
    /// Pages on the device.
    pub device_pages: u64,
    /// Nodes on the device.
    pub device_nodes: u64,
    /// Pages on the device without a lock.
    pub evictable_pages: u64,
    /// Pages on the host.
    pub host_pages: u64,
    /// Nodes on the host.
    pub host_nodes: u64,
    /// Pages on the host without a lock.
    pub idle_host_pages: u64,
    /// Pages on both.
    pub duplicate_pages: u64,
    /// Pages that left the device.
    pub evicted_pages: u64,
    /// Leaves that eviction from the device processed.
    pub evicted_leaves: u64,
}

/// Result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Deepest node on the device.
    pub device_node: u32,
    /// Pages on the device.
    pub device_pages: u32,
    /// Deepest node.
    pub node: u32,
    /// Pages of the whole path; pages behind the device's are only on the host.
    pub pages: u32,
}

/// Parameters of an insertion, without the pages.
#[derive(Debug, Clone, Copy)]
pub struct Insertion {
    /// Nodes that end at or before this page were counted by an earlier insertion.
    pub counted_pages: u32,
    /// Pages that the tree holds for the request, so that it releases no duplicates of them.
    pub protected_pages: u32,
    /// Minimum priority of the nodes of the path.
    pub priority: u64,
}

/// Tree, its clock and the order of its leaves.
#[derive(Debug)]
pub struct RadixTree {
    keys: Arc<BlockKeys>,
    rules: TreeRules,
    strategy: LeafStrategy,
    page: u64,
    clock: u64,
    nodes: Vec<Node>,
    spare: Vec<u32>,
    /// Child by parent and key of its first page.
    child: KeyMap<(u32, u64), u32>,
    /// Unlocked nodes on the device without a child there, by worth.
    device_leaves: BTreeSet<(u64, u64, u32)>,
    /// Unlocked nodes on the host alone without a child, by worth.
    host_leaves: BTreeSet<(u64, u64, u32)>,
    counts: TreeCounts,
    /// Host tier, if any.
    host: Option<HostTier>,
    /// Log of evictions from both tiers, if misses are counted by cause.
    pub log: Option<EvictionLog>,
}

impl RadixTree {
    /// A root without children; a page has `page` tokens.
    pub fn new(
        keys: Arc<BlockKeys>,
        rules: TreeRules,
        strategy: LeafStrategy,
        page: u32,
        host: Option<HostTier>,
    ) -> Self {
        let root = Node {
            on_device: true,
            locks: 1,
            ..Node::new(0, BlockRange::new(0, 0), ROOT, 0)
        };
        Self {
            keys,
            rules,
            strategy,
            page: u64::from(page),
            clock: 0,
            nodes: vec![root],
            spare: Vec::new(),
            child: KeyMap::default(),
            device_leaves: BTreeSet::new(),
            host_leaves: BTreeSet::new(),
            counts: TreeCounts::default(),
            host,
            log: None,
        }
    }

    /// Returns the keys of the trace's pages.
    pub fn keys(&self) -> &BlockKeys {
        &self.keys
    }

    /// Returns the counts of the tree.
    pub fn counts(&self) -> TreeCounts {
        self.counts
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adds a node without a copy on any tier, linked to its parent.
    fn add(&mut self, node: Node) -> u32 {
        let key = (node.parent, self.keys.key(node.request, node.start));
        let at = if let Some(at) = self.spare.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            fit::<u32>(self.nodes.len() - 1)
        };
        self.child.insert(key, at);
        at
    }

    /// Returns the child whose pages match the request's from `walked` on, and the number of common pages.
    fn step(&self, node: u32, request: u32, walked: u32, pages: u32) -> Option<(u32, u32)> {
        if walked == pages {
            return None;
        }
        let child = *self.child.get(&(node, self.keys.key(request, walked)))?;
        let below = &self.nodes[child as usize];
        let end = pages.min(walked + below.pages);
        Some((child, self.keys.common(below.request, request, walked, end)))
    }

    /// Splits off the first `pages` pages into a new node above `child`, on the same tiers.
    fn split(&mut self, child: u32, pages: u32) -> u32 {
        self.leave(child);
        let below = self.nodes[child as usize];
        let mut used = below.used;
        if self.rules == TreeRules::Classic {
            used.creation = self.tick();
        }
        let upper = self.add(Node {
            pages,
            children: 1,
            device_children: u32::from(below.on_device),
            used,
            duplicate: 0,
            ..below
        });
        let first = self.keys.key(below.request, below.start + pages);
        self.child.insert((upper, first), child);
        let lower = &mut self.nodes[child as usize];
        lower.parent = upper;
        lower.start += pages;
        lower.pages -= pages;
        self.enter(child);
        self.enter(upper);
        self.register_duplicate(upper);
        upper
    }

    /// Makes a visited child most recent, and splits it if only its first `common` pages match.
    fn walk_into(&mut self, child: u32, common: u32, now: u64) -> u32 {
        self.rerank(child, |n| n.used.last_access = now);
        if common < self.nodes[child as usize].pages {
            return self.split(child, common);
        }
        child
    }

    /// Returns the longest known prefix of the request's first `pages` pages. The last node is split to fit,
    /// and the path becomes most recent.
    pub fn match_prefix(&mut self, request: u32, pages: u32) -> Found {
        let mut found = Found {
            device_node: ROOT,
            device_pages: 0,
            node: ROOT,
            pages: 0,
        };
        if pages == 0 {
            return found;
        }
        let now = self.tick();
        while let Some((child, common)) = self.step(found.node, request, found.pages, pages) {
            let is_whole = common == self.nodes[child as usize].pages;
            found.node = self.walk_into(child, common, now);
            found.pages += common;
            if self.nodes[found.node as usize].on_device {
                (found.device_node, found.device_pages) = (found.node, found.pages);
            }
            if !is_whole {
                break;
            }
        }
        found
    }

    /// Inserts the request's first `pages` pages, at least one, which it holds on the device. Returns the node
    /// they end at, and the number of pages that the tree already had on the device: duplicates, which are
    /// released.
    pub fn insert(&mut self, request: u32, pages: u32, how: Insertion) -> (u32, u32) {
        let now = self.tick();
        let root = &mut self.nodes[ROOT as usize];
        root.priority = root.priority.max(how.priority);
        let (mut node, mut walked, mut duplicates) = (ROOT, 0, 0);
        while let Some((child, common)) = self.step(node, request, walked, pages) {
            node = self.walk_into(child, common, now);
            if self.nodes[node as usize].priority < how.priority {
                self.rerank(node, |n| n.priority = how.priority);
            }
            let end = walked + common;
            if self.nodes[node as usize].on_device {
                duplicates += end.saturating_sub(walked.max(how.protected_pages));
            } else {
                self.set_device(node, true);
                self.register_duplicate(node);
            }
            walked = end;
            if end > how.counted_pages {
                self.count(node);
            }
        }
        if walked < pages {
            let blocks = BlockRange::new(walked, pages);
            node = self.add_leaf(request, blocks, node, how.priority);
            if pages > how.counted_pages {
                self.count(node);
            }
        }
        (node, duplicates)
    }

    /// Adds a leaf on the device below a parent, with a priority.
    fn add_leaf(&mut self, request: u32, blocks: BlockRange, parent: u32, priority: u64) -> u32 {
        let now = self.tick();
        let leaf = self.add(Node {
            on_device: true,
            priority,
            ..Node::new(request, blocks, parent, now)
        });
        self.enter(leaf);
        self.rerank(parent, |n| {
            n.children += 1;
            n.device_children += 1;
        });
        self.raise_history(parent, blocks.end);
        leaf
    }

    /// Records on the path from `above` up that a page ends at `end` below it.
    fn raise_history(&mut self, mut above: u32, end: u32) {
        while above != ROOT && self.nodes[above as usize].history < end {
            self.rerank(above, |n| n.history = end);
            above = self.nodes[above as usize].parent;
        }
    }

    /// Counts a hit. A node with enough hits is written to the host, its ancestors first.
    fn count(&mut self, node: u32) {
        let threshold = match &self.host {
            Some(host) => host.write.threshold(),
            None => Some(u64::MAX),
        };
        let Some(threshold) = threshold else { return };
        self.rerank(node, |n| n.used.hit_count += 1);
        let counted = &self.nodes[node as usize];
        if !counted.on_host && counted.used.hit_count >= threshold {
            self.write_path(node);
        }
    }

    /// Returns the leaves on the device, next to be evicted first, as each tree's digests name them. Classic:
    /// key of the first page and number of pages. Default: key of the last page and pages from the root to its
    /// end.
    pub fn leaves(&self) -> Vec<(u64, u32)> {
        let leaf = |&(_, _, at): &(u64, u64, u32)| {
            let node = &self.nodes[at as usize];
            let end = node.start + node.pages;
            match self.rules {
                TreeRules::Classic => (self.keys.key(node.request, node.start), node.pages),
                TreeRules::Unified => (self.keys.key(node.request, end - 1), end),
            }
        };
        self.device_leaves.iter().map(leaf).collect()
    }

    /// Returns the bytes on the heap, excluding the trace's keys; maps and sets are estimates.
    pub fn heap_bytes(&self) -> usize {
        std::mem::size_of::<Node>() * self.nodes.capacity()
            + 25 * self.child.capacity()
            + 48 * (self.device_leaves.len() + self.host_leaves.len())
    }
}

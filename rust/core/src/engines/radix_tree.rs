//! SGLang's radix tree (0.5.23, `srt/mem_cache/radix_cache.py`, the classic `RadixCache`), counted in pages.
//!
//! A node is a run of pages, named by a request that shows it; nothing is copied. A counter gives every time:
//! a walk takes one tick, a new node two. Leaves without a lock stand in an ordered set and are evicted whole.

mod check;
mod paths;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key_index::KeyMap;
use super::leaf_order::{LeafOrder, NodeUse};
use crate::causes::eviction_log::EvictionLog;
use crate::keys::BlockKeys;

/// The root, which is never evicted.
pub const ROOT: u32 = 0;

/// Pages `[start, start + pages)` of a request, below the parent's.
#[derive(Debug)]
struct Node {
    request: u32,
    start: u32,
    pages: u32,
    parent: u32,
    children: u32,
    locks: u32,
    used: NodeUse,
    /// Its place among its parent's children: that of the first node that stood there.
    place: u64,
}

/// What the tree holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeCounts {
    /// Pages of all nodes.
    pub pages: u64,
    /// Nodes, the root left out.
    pub nodes: u64,
    /// Nodes evicted since the tree was made.
    pub evicted_nodes: u64,
    /// Their pages.
    pub evicted_pages: u64,
}

/// The tree, its clock and the order of its leaves.
#[derive(Debug)]
pub struct RadixTree {
    keys: Arc<BlockKeys>,
    order: LeafOrder,
    clock: u64,
    nodes: Vec<Node>,
    spare: Vec<u32>,
    /// Child by parent and key of its first page.
    child: KeyMap<(u32, u64), u32>,
    /// Leaves without a lock, by worth.
    leaves: BTreeSet<(u64, u64, u32)>,
    evictable_pages: u64,
    counts: TreeCounts,
    /// Evictions by time, where the reasons of misses are asked for.
    pub log: Option<EvictionLog>,
}

impl RadixTree {
    /// The keys of the trace's pages.
    pub fn keys(&self) -> &BlockKeys {
        &self.keys
    }

    /// A root without children.
    pub fn new(keys: Arc<BlockKeys>, order: LeafOrder) -> Self {
        let mut tree = Self {
            keys,
            order,
            clock: 0,
            nodes: Vec::new(),
            spare: Vec::new(),
            child: KeyMap::default(),
            leaves: BTreeSet::new(),
            evictable_pages: 0,
            counts: TreeCounts {
                pages: 0,
                nodes: 0,
                evicted_nodes: 0,
                evicted_pages: 0,
            },
            log: None,
        };
        tree.add(Node {
            locks: 1,
            ..tree.fresh(0, 0, 0, ROOT)
        });
        tree.counts.nodes = 0;
        tree.tick();
        tree.tick();
        tree
    }

    /// Pages of nodes without a lock.
    pub fn evictable_pages(&self) -> u64 {
        self.evictable_pages
    }

    /// What the tree holds.
    pub fn counts(&self) -> TreeCounts {
        self.counts
    }

    /// Pages from the root to the end of a node.
    pub fn end(&self, node: u32) -> u64 {
        let node = &self.nodes[node as usize];
        u64::from(node.start) + u64::from(node.pages)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn fresh(&self, request: u32, start: u32, pages: u32, parent: u32) -> Node {
        let (last_access, creation) = (self.clock + 1, self.clock + 2);
        Node {
            request,
            start,
            pages,
            parent,
            children: 0,
            locks: 0,
            used: NodeUse {
                last_access,
                creation,
                hit_count: 0,
            },
            place: creation,
        }
    }

    fn add(&mut self, node: Node) -> u32 {
        self.counts.nodes += 1;
        if let Some(at) = self.spare.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn rank(&self, at: u32) -> (u64, u64, u32) {
        let node = &self.nodes[at as usize];
        let (first, second) = self.order.worth(node.used, node.pages);
        (first, second, at)
    }

    fn is_candidate(&self, at: u32) -> bool {
        let node = &self.nodes[at as usize];
        at != ROOT && node.children == 0 && node.locks == 0
    }

    /// Changes a node, keeping its place among the candidates right.
    fn change(&mut self, at: u32, change: impl FnOnce(&mut Node)) {
        if self.is_candidate(at) {
            self.leaves.remove(&self.rank(at));
        }
        change(&mut self.nodes[at as usize]);
        if self.is_candidate(at) {
            self.leaves.insert(self.rank(at));
        }
    }

    /// The child whose pages begin with the request's from `walked` on, and how many they share.
    fn step(&self, node: u32, request: u32, walked: u32, pages: u32) -> Option<(u32, u32)> {
        let child = *self.child.get(&(node, self.keys.key(request, walked)))?;
        let below = &self.nodes[child as usize];
        let end = pages.min(walked + below.pages);
        Some((child, self.keys.common(below.request, request, walked, end)))
    }

    /// How many of the request's leading pages, at most `pages`, are here; nothing changes.
    pub fn peek(&self, request: u32, pages: u32) -> u32 {
        let (mut node, mut walked) = (ROOT, 0);
        while walked < pages {
            let Some((child, common)) = self.step(node, request, walked, pages) else {
                break;
            };
            walked += common;
            if common < self.nodes[child as usize].pages {
                break;
            }
            node = child;
        }
        walked
    }

    /// How many of the request's first `pages` pages, all of them here, nobody locks; nothing changes.
    pub fn unlocked_pages(&self, request: u32, pages: u32) -> u32 {
        let (mut node, mut walked, mut locked) = (ROOT, 0, 0);
        while walked < pages {
            let Some((child, common)) = self.step(node, request, walked, pages) else {
                break;
            };
            // what is locked is above what is not
            if self.nodes[child as usize].locks == 0 {
                break;
            }
            walked += common;
            locked = walked;
            node = child;
        }
        pages - locked
    }

    /// Touches the path of the request's first `pages` pages, splits its last node to fit, and counts a hit
    /// on each node that ends past `done`. Returns the last node and the pages walked.
    fn walk(&mut self, request: u32, pages: u32, done: Option<u32>) -> (u32, u32) {
        let (mut node, mut walked) = (ROOT, 0);
        if pages == 0 {
            return (node, walked);
        }
        let now = self.tick();
        self.nodes[ROOT as usize].used.last_access = now;
        while walked < pages {
            let Some((child, common)) = self.step(node, request, walked, pages) else {
                break;
            };
            walked += common;
            self.change(child, |n| n.used.last_access = now);
            node = if common < self.nodes[child as usize].pages {
                self.split(child, common)
            } else {
                child
            };
            if done.is_some_and(|done| walked > done) {
                self.change(node, |n| n.used.hit_count += 1);
            }
        }
        (node, walked)
    }

    /// Puts a new node with the first `pages` pages above `child`, which keeps its times.
    fn split(&mut self, child: u32, pages: u32) -> u32 {
        let below = &self.nodes[child as usize];
        let (request, start, parent) = (below.request, below.start, below.parent);
        let fresh = self.fresh(request, start, pages, parent);
        let upper = Node {
            place: below.place,
            children: 1,
            locks: below.locks,
            used: NodeUse {
                hit_count: below.used.hit_count,
                ..fresh.used
            },
            ..fresh
        };
        self.tick();
        self.tick();
        let upper = self.add(upper);
        self.child
            .insert((parent, self.keys.key(request, start)), upper);
        self.child
            .insert((upper, self.keys.key(request, start + pages)), child);
        self.change(child, |below| {
            below.parent = upper;
            below.start += pages;
            below.pages -= pages;
        });
        upper
    }

    /// The deepest node of the longest known prefix of the request's first `pages` pages, and its pages.
    pub fn match_prefix(&mut self, request: u32, pages: u32) -> (u32, u32) {
        self.walk(request, pages, None)
    }

    /// Adds the request's first `pages` pages and returns how many were there; `done` of them were counted
    /// as hits before.
    pub fn insert(&mut self, request: u32, pages: u32, done: u32) -> u32 {
        let (node, walked) = self.walk(request, pages, Some(done));
        if walked < pages {
            let mut leaf = self.fresh(request, walked, pages - walked, node);
            leaf.used.hit_count = u64::from(pages > done);
            self.tick();
            self.tick();
            let leaf = self.add(leaf);
            self.change(node, |n| n.children += 1);
            self.child
                .insert((node, self.keys.key(request, walked)), leaf);
            self.leaves.insert(self.rank(leaf));
            self.evictable_pages += u64::from(pages - walked);
            self.counts.pages += u64::from(pages - walked);
        }
        walked
    }

    /// Locks the path from `node` up to the root.
    pub fn lock(&mut self, mut node: u32) {
        while node != ROOT {
            if self.nodes[node as usize].locks == 0 {
                self.evictable_pages -= u64::from(self.nodes[node as usize].pages);
            }
            self.change(node, |n| n.locks += 1);
            node = self.nodes[node as usize].parent;
        }
    }

    /// Unlocks the path from `node` up to the root.
    pub fn unlock(&mut self, mut node: u32) {
        while node != ROOT {
            self.change(node, |n| n.locks -= 1);
            if self.nodes[node as usize].locks == 0 {
                self.evictable_pages += u64::from(self.nodes[node as usize].pages);
            }
            node = self.nodes[node as usize].parent;
        }
    }

    /// Evicts whole leaves until `pages` are free or none is left; returns the pages freed.
    pub fn evict(&mut self, pages: u64) -> u64 {
        let mut freed = 0;
        while freed < pages {
            let Some((_, _, leaf)) = self.leaves.pop_first() else {
                break;
            };
            let node = &self.nodes[leaf as usize];
            let (request, start, run, parent) = (node.request, node.start, node.pages, node.parent);
            self.child.remove(&(parent, self.keys.key(request, start)));
            self.change(parent, |n| n.children -= 1);
            self.spare.push(leaf);
            freed += u64::from(run);
            self.counts.nodes -= 1;
            self.counts.evicted_nodes += 1;
            self.note(request, start, run);
        }
        self.evictable_pages -= freed;
        self.counts.pages -= freed;
        self.counts.evicted_pages += freed;
        freed
    }

    fn note(&mut self, request: u32, start: u32, pages: u32) {
        let Some(log) = &mut self.log else { return };
        let (mut page, end) = (start, start + pages);
        while page < end {
            let (key, run) = self.keys.run(request, page);
            log.evicted(key, run.min(end - page));
            page += run.min(end - page);
        }
    }

    /// Key of the first page, and pages, of every leaf without a lock, next to be evicted first.
    pub fn leaves(&self) -> Vec<(u64, u32)> {
        let of = |at: u32| &self.nodes[at as usize];
        let leaf = |&(_, _, at): &(u64, u64, u32)| {
            (self.keys.key(of(at).request, of(at).start), of(at).pages)
        };
        self.leaves.iter().map(leaf).collect()
    }

    /// Bytes held on the heap, maps and sets estimated, the trace's keys left out.
    pub fn heap_bytes(&self) -> usize {
        std::mem::size_of::<Node>() * self.nodes.capacity()
            + 25 * self.child.capacity()
            + 48 * self.leaves.len()
    }
}

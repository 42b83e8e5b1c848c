//! HiCache: copies on the host, written by hit count or at eviction, and loaded back.
//!
//! The tree decides as if transfers took no time: a write or load is done when it is asked for. Whoever gives
//! them a time takes what was written (`in_time`), and locks what must stay meanwhile.

use std::collections::BTreeMap;

use super::in_time::HostChanges;
use super::storage::Storage;
use super::{Node, RadixTree, ROOT};

/// When a node is written to the host (SGLang's `hicache_write_policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePolicy {
    /// At its first hit.
    Through,
    /// At its second hit.
    Selective,
    /// When it leaves the device.
    Back,
}

impl WritePolicy {
    /// The policy of a name, as SGLang writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "write_through" => Self::Through,
            "write_through_selective" => Self::Selective,
            "write_back" => Self::Back,
            _ => return None,
        })
    }

    /// Hits at which a node is written; None: hits are not counted.
    pub(super) fn threshold(self) -> Option<u64> {
        match self {
            Self::Through => Some(1),
            Self::Selective => Some(2),
            Self::Back => None,
        }
    }
}

/// The host's room, and the nodes that lie on both tiers.
#[derive(Debug)]
pub struct HostTier {
    pub(super) write: WritePolicy,
    /// Pages of room.
    capacity_pages: u64,
    /// Nodes on both tiers, in the order in which they came to be; under write-back alone.
    duplicates: BTreeMap<u64, u32>,
    registered: u64,
    /// Pages of its room that prefetches from a storage will fill.
    reserved_pages: u64,
    /// Below the host, where there is one.
    pub(super) storage: Option<Storage>,
    /// What a store in time is told, where it is one.
    pub(super) host_changes: Option<HostChanges>,
    /// What moved.
    pub moved: HostMoves,
}

/// What was written to the host and left it.
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
            storage: None,
            host_changes: None,
            moved: HostMoves::default(),
        }
    }

    /// The same tier, which tells a store in time what is written and where.
    pub fn in_time(self) -> Self {
        Self {
            host_changes: Some(HostChanges::default()),
            ..self
        }
    }

    /// The same tier above a storage.
    pub fn above(self, storage: Option<Storage>) -> Self {
        Self { storage, ..self }
    }
}

impl RadixTree {
    /// Free pages of the host, 0 without one.
    pub fn host_free_pages(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| {
            host.capacity_pages - host.reserved_pages - self.counts.host_pages
        })
    }

    /// What moved to the host and left it.
    pub fn host_moves(&self) -> HostMoves {
        self.host
            .as_ref()
            .map_or(HostMoves::default(), |host| host.moved)
    }

    /// Whether there is a host tier.
    pub fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// Whether nodes are written when they leave the device.
    pub fn writes_back(&self) -> bool {
        let is_back = |host: &HostTier| host.write == WritePolicy::Back;
        self.host.as_ref().is_some_and(is_back)
    }

    /// Tokens of the host's room.
    pub(super) fn host_page_tokens(&self) -> u64 {
        let pages = self.host.as_ref().map_or(0, |host| host.capacity_pages);
        pages.saturating_mul(self.page)
    }

    /// Keeps the host copies of the nodes that now have the `pages` that end with a node: splits may have put some
    /// above it.
    pub fn lock_host(&mut self, node: u32, pages: u32) {
        self.each_of_run(node, pages, |n| n.host_locks += 1);
    }

    /// Ends a `lock_host`.
    pub fn unlock_host(&mut self, node: u32, pages: u32) {
        self.each_of_run(node, pages, |n| n.host_locks -= 1);
    }

    fn each_of_run(&mut self, mut node: u32, pages: u32, change: impl Fn(&mut Node)) {
        let mut left = pages;
        while left > 0 && node != ROOT {
            self.change(node, &change);
            left = left.saturating_sub(self.nodes[node as usize].pages);
            node = self.nodes[node as usize].parent;
        }
    }

    /// Pages of a node.
    pub fn pages_of(&self, node: u32) -> u32 {
        self.nodes[node as usize].pages
    }

    /// Takes free pages of the host for a prefetch.
    pub(super) fn reserve_host(&mut self, pages: u32) {
        if let Some(host) = &mut self.host {
            host.reserved_pages += u64::from(pages);
        }
    }

    /// Gives pages back that were reserved for a prefetch.
    pub fn release_host(&mut self, pages: u32) {
        if let Some(host) = &mut self.host {
            host.reserved_pages -= u64::from(pages);
        }
    }

    /// Pages of the host that prefetches will fill.
    pub fn reserved_host_pages(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.reserved_pages)
    }

    fn moved(&mut self) -> &mut HostMoves {
        &mut self.host.as_mut().expect("a host tier").moved
    }

    /// Writes a node and those above it that are not on the host, topmost first, until one finds no room.
    pub(super) fn write_path(&mut self, node: u32) {
        let mut path = Vec::new();
        let mut at = node;
        while at != ROOT && !self.nodes[at as usize].on_host {
            path.push(at);
            at = self.nodes[at as usize].parent;
        }
        while path.pop().is_some_and(|at| self.write(at)) {}
    }

    /// Writes one node; false where evicting from the host gives too little room.
    pub(super) fn write(&mut self, at: u32) -> bool {
        let pages = u64::from(self.nodes[at as usize].pages);
        let free = self.host_free_pages();
        if free < pages && self.evict_host(pages - free) < pages - free {
            return false;
        }
        self.change(at, |n| n.on_host = true);
        self.moved().written_pages += pages;
        self.note_written(at);
        self.store(at);
        self.register_duplicate(at);
        true
    }

    pub(super) fn drop_host_copy(&mut self, at: u32) {
        self.note_dropped(at);
        self.change(at, |n| n.on_host = false);
    }

    /// Frees `need` pages of the host, or what can be; returns the pages freed.
    pub(super) fn evict_host(&mut self, need: u64) -> u64 {
        let mut freed = 0;
        if self.writes_back() {
            freed += self.drop_duplicates(need, true);
            if freed < need {
                freed += self.drop_duplicates(need - freed, false);
            }
        }
        while freed < need {
            let Some(&(_, _, leaf)) = self.host_leaves.first() else {
                break;
            };
            let pages = u64::from(self.nodes[leaf as usize].pages);
            self.delete(leaf);
            freed += pages;
            self.moved().evicted_pages += pages;
            self.moved().evicted_leaves += 1;
        }
        freed
    }

    /// Drops host copies of nodes that are on the device too, oldest first, those about to leave it spared or
    /// not, until `need` pages are free; entries that are no duplicates any more go too.
    fn drop_duplicates(&mut self, need: u64, spare_leaves: bool) -> u64 {
        let host = self.host.as_ref().expect("a host tier");
        let listed: Vec<(u64, u32)> = host.duplicates.iter().map(|(&k, &v)| (k, v)).collect();
        let mut freed = 0;
        for (slot, at) in listed {
            if freed >= need {
                break;
            }
            let node = &self.nodes[at as usize];
            if node.on_device && node.on_host {
                if node.host_locks > 0 || spare_leaves && self.is_device_leaf(at) {
                    continue;
                }
                freed += u64::from(node.pages);
                self.drop_host_copy(at);
            }
            self.nodes[at as usize].duplicate = 0;
            self.forget_duplicate(slot);
        }
        freed
    }

    /// Lists a node that is on both tiers; one that is listed keeps its place.
    pub(super) fn register_duplicate(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let Some(host) = &mut self.host else { return };
        let is_new = node.on_device && node.on_host && node.duplicate == 0;
        if is_new && host.write == WritePolicy::Back {
            host.registered += 1;
            node.duplicate = host.registered;
            host.duplicates.insert(host.registered, at);
        }
    }

    pub(super) fn forget_duplicate(&mut self, slot: u64) {
        if let Some(host) = &mut self.host {
            host.duplicates.remove(&slot);
        }
    }

    /// Gives the nodes from `node` up that are on the host alone their copies on the device.
    pub fn load(&mut self, node: u32) {
        let mut at = node;
        while !self.nodes[at as usize].on_device {
            self.set_device(at, true);
            self.register_duplicate(at);
            at = self.nodes[at as usize].parent;
        }
    }
}

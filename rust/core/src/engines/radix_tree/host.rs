//! HiCache: copies on the host, written by hit count or at eviction, and loaded back.
//!
//! The tree decides as if transfers took no time: a write or load is complete at its call. A caller that models
//! transfer times takes the writes (`in_time`), and locks pages that must stay meanwhile.

use super::host_tier::{HostLock, HostMoves, HostTier, WritePolicy};
use super::node::{Node, ROOT};
use super::RadixTree;
use crate::convert::fit;

impl RadixTree {
    /// Returns the free pages of the host, 0 without a host.
    pub fn host_free_pages(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| {
            host.capacity_pages - host.reserved_pages - self.counts.host_pages
        })
    }

    /// Returns the counts of pages written to the host and evicted from it.
    pub fn host_moves(&self) -> HostMoves {
        self.host
            .as_ref()
            .map_or(HostMoves::default(), |host| host.moved)
    }

    /// Returns true if there is a host tier.
    pub fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// Returns true if nodes are written when they leave the device.
    pub fn writes_back(&self) -> bool {
        let is_back = |host: &HostTier| host.write == WritePolicy::Back;
        self.host.as_ref().is_some_and(is_back)
    }

    /// Returns the host's capacity in tokens.
    pub(super) fn host_page_tokens(&self) -> u64 {
        let pages = self.host.as_ref().map_or(0, |host| host.capacity_pages);
        pages.saturating_mul(self.page)
    }

    /// Locks the host copies of the nodes that have the last `pages` pages up to a node's end; splits may have
    /// moved some of them above the node.
    pub fn lock_host(&mut self, node: u32, pages: u32) {
        self.each_of_run(node, pages, |n| n.host_locks += 1);
    }

    /// Unlocks what `lock_host` locked.
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

    /// Locks the host copy of each node that is written as it leaves the device, for the caller to unlock.
    pub fn keep_written(&mut self) {
        if let Some(host) = &mut self.host {
            host.keeps_written = true;
        }
    }

    /// Returns the nodes that have the last `pages` pages up to a node's end, the first of them first.
    pub fn nodes_of(&self, mut node: u32, pages: u32) -> Vec<HostLock> {
        let (mut left, mut found) = (pages, Vec::new());
        while left > 0 && node != ROOT {
            let pages = self.pages_of(node);
            found.push(HostLock { node, pages });
            left = left.saturating_sub(pages);
            node = self.parent(node);
        }
        found.reverse();
        found
    }

    /// Returns the number of a node's pages.
    pub fn pages_of(&self, node: u32) -> u32 {
        self.nodes[node as usize].pages
    }

    /// Reserves free pages of the host for a prefetch.
    pub(super) fn reserve_host(&mut self, pages: u32) {
        if let Some(host) = &mut self.host {
            host.reserved_pages += u64::from(pages);
        }
    }

    /// Releases pages that were reserved for a prefetch.
    pub fn release_host(&mut self, pages: u32) {
        if let Some(host) = &mut self.host {
            host.reserved_pages -= u64::from(pages);
        }
    }

    /// Returns the pages of the host that prefetches will fill.
    pub fn reserved_host_pages(&self) -> u64 {
        self.host.as_ref().map_or(0, |host| host.reserved_pages)
    }

    fn moved(&mut self) -> &mut HostMoves {
        &mut self.host.as_mut().expect("a host tier").moved
    }

    /// Writes a node and its ancestors that are not on the host, topmost first, until a write does not fit.
    pub(super) fn write_path(&mut self, node: u32) {
        let mut path = Vec::new();
        let mut at = node;
        while at != ROOT && !self.nodes[at as usize].on_host {
            path.push(at);
            at = self.nodes[at as usize].parent;
        }
        while path.pop().is_some_and(|at| self.write(at)) {}
    }

    /// Writes one node. Returns false if evictions from the host free too few pages.
    pub(super) fn write(&mut self, at: u32) -> bool {
        let pages = u64::from(self.nodes[at as usize].pages);
        let free = self.host_free_pages();
        if free < pages && self.evict_host(pages - free) < pages - free {
            return false;
        }
        self.change(at, |n| n.on_host = true);
        self.moved().written_pages += pages;
        self.note_written(at);
        if self.writes_back() && self.host.as_ref().is_some_and(|host| host.keeps_written) {
            self.lock_host(at, fit::<u32>(pages));
        }
        self.store(at);
        self.register_duplicate(at);
        true
    }

    pub(super) fn drop_host_copy(&mut self, at: u32) {
        self.note_dropped(at);
        self.change(at, |n| n.on_host = false);
    }

    /// Frees `need` pages of the host, or as many as possible. Returns the pages freed.
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

    /// Drops host copies of nodes that are also on the device, oldest first, until `need` pages are free.
    /// `spare_leaves` spares nodes about to leave the device. Entries that are no longer duplicates are removed
    /// too.
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

    /// Registers a node that is on both tiers; a registered node keeps its position.
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

    /// Loads the nodes from `node` up that are only on the host to the device. Returns their pages.
    pub fn load(&mut self, node: u32) -> u32 {
        let (mut at, mut pages) = (node, 0);
        while !self.nodes[at as usize].on_device {
            self.set_device(at, true);
            pages += self.nodes[at as usize].pages;
            at = self.nodes[at as usize].parent;
        }
        pages
    }

    /// Registers the nodes that have the last `pages` pages up to a node's end as nodes on both tiers.
    pub fn register_loaded(&mut self, mut node: u32, pages: u32) {
        let mut left = pages;
        while left > 0 && node != ROOT {
            self.register_duplicate(node);
            left = left.saturating_sub(self.nodes[node as usize].pages);
            node = self.nodes[node as usize].parent;
        }
    }
}

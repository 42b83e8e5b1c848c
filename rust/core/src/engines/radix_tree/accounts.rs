//! Changes of nodes that keep counts and the order of leaves consistent, and locks.

use super::{Node, RadixTree, ROOT};

impl RadixTree {
    pub(super) fn rank(&self, at: u32) -> (u64, u64, u32) {
        let (first, second) = self.strategy.worth(&self.nodes[at as usize], self.page);
        (first, second, at)
    }

    pub(super) fn is_device_leaf(&self, at: u32) -> bool {
        let node = &self.nodes[at as usize];
        at != ROOT && node.on_device && node.locks == 0 && node.device_children == 0
    }

    pub(super) fn is_host_leaf(&self, at: u32) -> bool {
        let node = &self.nodes[at as usize];
        let host_alone = node.on_host && !node.on_device;
        let is_free = node.locks == 0 && node.host_locks == 0;
        at != ROOT && host_alone && is_free && node.children == 0
    }

    fn leave_order(&mut self, at: u32) {
        if self.is_device_leaf(at) {
            self.device_leaves.remove(&self.rank(at));
        } else if self.is_host_leaf(at) {
            self.host_leaves.remove(&self.rank(at));
        }
    }

    fn enter_order(&mut self, at: u32) {
        if self.is_device_leaf(at) {
            self.device_leaves.insert(self.rank(at));
        } else if self.is_host_leaf(at) {
            self.host_leaves.insert(self.rank(at));
        }
    }

    /// Changes the counts by what a node contributes to them.
    fn count_node(&mut self, at: u32, change: impl Fn(&mut u64, u64)) {
        let (node, counts) = (&self.nodes[at as usize], &mut self.counts);
        let pages = u64::from(node.pages);
        let idle_pages = if node.locks == 0 { pages } else { 0 };
        if node.on_device && at != ROOT {
            change(&mut counts.device_pages, pages);
            change(&mut counts.device_nodes, 1);
            change(&mut counts.evictable_pages, idle_pages);
        }
        if node.on_host {
            change(&mut counts.host_pages, pages);
            change(&mut counts.host_nodes, 1);
            change(&mut counts.idle_host_pages, idle_pages);
            let twice = if node.on_device { pages } else { 0 };
            change(&mut counts.duplicate_pages, twice);
        }
    }

    /// Removes a node from the counts and the orders, before it changes.
    pub(super) fn leave(&mut self, at: u32) {
        self.leave_order(at);
        self.count_node(at, |count, share| *count -= share);
    }

    /// Adds a node to the counts and the orders, after it has changed.
    pub(super) fn enter(&mut self, at: u32) {
        self.count_node(at, |count, share| *count += share);
        self.enter_order(at);
    }

    pub(super) fn change(&mut self, at: u32, change: impl FnOnce(&mut Node)) {
        self.leave(at);
        change(&mut self.nodes[at as usize]);
        self.enter(at);
    }

    /// Changes a node's worth or leaf status. Its tiers, pages and first lock must not change, since counts
    /// depend on them.
    pub(super) fn rerank(&mut self, at: u32, change: impl FnOnce(&mut Node)) {
        self.leave_order(at);
        change(&mut self.nodes[at as usize]);
        self.enter_order(at);
    }

    /// Sets or removes a node's copy on the device; the parent counts its children there.
    pub(super) fn set_device(&mut self, at: u32, is_there: bool) {
        self.change(at, |n| n.on_device = is_there);
        let parent = self.nodes[at as usize].parent;
        self.rerank(parent, |n| match is_there {
            true => n.device_children += 1,
            false => n.device_children -= 1,
        });
    }

    /// Deletes a node without children from the tree, including its copies.
    pub(super) fn delete(&mut self, at: u32) {
        self.note_dropped(at);
        self.leave(at);
        let node = self.nodes[at as usize];
        let gone = &mut self.nodes[at as usize];
        (gone.on_device, gone.on_host) = (false, false);
        self.forget_duplicate(node.duplicate);
        let first = self.keys.key(node.request, node.start);
        self.child.remove(&(node.parent, first));
        self.rerank(node.parent, |n| {
            n.children -= 1;
            n.device_children -= u32::from(node.on_device);
        });
        self.spare.push(at);
        self.note(node.request, node.start, node.pages);
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

    /// Locks the path from `node` up to the root.
    pub fn lock(&mut self, mut node: u32) {
        while node != ROOT {
            if self.nodes[node as usize].locks > 0 {
                self.nodes[node as usize].locks += 1;
            } else {
                self.change(node, |n| n.locks = 1);
            }
            node = self.nodes[node as usize].parent;
        }
    }

    /// Unlocks the path from `node` up to the root.
    pub fn unlock(&mut self, mut node: u32) {
        while node != ROOT {
            if self.nodes[node as usize].locks > 1 {
                self.nodes[node as usize].locks -= 1;
            } else {
                self.change(node, |n| n.locks -= 1);
            }
            node = self.nodes[node as usize].parent;
        }
    }
}

//! Eviction from the device: whole leaves move to the host or are dropped.

use super::RadixTree;
use crate::convert::fit;

impl RadixTree {
    /// Evicts leaves from the device until `pages` are free or none is left. Returns the pages freed.
    ///
    /// A leaf with a copy on the host stays there. Under write-back a leaf without a copy is written first; if the
    /// host has no capacity for it, the leaf is dropped with everything below it.
    pub fn evict(&mut self, pages: u64) -> u64 {
        let (mut freed, mut kept) = (0, Vec::new());
        while freed < pages {
            let Some(&(first, second, leaf)) = self.device_leaves.first() else {
                break;
            };
            self.counts.evicted_leaves += 1;
            let size = u64::from(self.nodes[leaf as usize].pages);
            if self.nodes[leaf as usize].on_host || (self.writes_back() && self.write(leaf)) {
                self.set_device(leaf, false);
            } else if self.has_locked_below(leaf) {
                self.device_leaves.remove(&(first, second, leaf));
                kept.push((first, second, leaf));
                continue;
            } else {
                self.delete_below(leaf);
                self.delete(leaf);
            }
            freed += size;
        }
        self.device_leaves.extend(kept);
        self.counts.evicted_pages += freed;
        freed
    }

    /// Returns every node below `top`, parents first. Cost: 0 without children, else linear in nodes for each
    /// call.
    fn below(&self, top: u32) -> Vec<u32> {
        let is_child = |at: u32, parent: u32| {
            let node = &self.nodes[at as usize];
            let key = (parent, self.keys.key(node.request, node.start));
            node.parent == parent && self.child.get(&key) == Some(&at)
        };
        let (mut found, mut above) = (Vec::new(), top);
        let mut next = 0;
        loop {
            if self.nodes[above as usize].children > 0 {
                let all = 1..fit::<u32>(self.nodes.len());
                found.extend(all.filter(|&at| is_child(at, above)));
            }
            match found.get(next) {
                Some(&at) => above = at,
                None => return found,
            }
            next += 1;
        }
    }

    fn has_locked_below(&self, top: u32) -> bool {
        self.below(top).iter().any(|&at| {
            let node = &self.nodes[at as usize];
            node.locks > 0 || node.host_locks > 0
        })
    }

    fn delete_below(&mut self, top: u32) {
        for at in self.below(top).into_iter().rev() {
            self.delete(at);
        }
    }
}

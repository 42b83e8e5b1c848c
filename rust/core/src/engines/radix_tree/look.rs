//! Look-ups that change nothing: no node is split or becomes recent.

use super::worth::LeafStrategy;
use super::{RadixTree, ROOT};

/// Result of a look-up without changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    /// Pages on the device.
    pub device_pages: u32,
    /// Pages on the device without a lock.
    pub idle_device_pages: u32,
    /// Pages of the whole path; pages behind the device's are only on the host.
    pub pages: u32,
}

impl RadixTree {
    /// Returns the known part of the request's first `limit` pages.
    pub fn peek(&self, request: u32, limit: u32) -> Sight {
        let (mut sight, mut above) = (Sight::default(), ROOT);
        while let Some((at, common)) = self.step(above, request, sight.pages, limit) {
            let node = &self.nodes[at as usize];
            sight.pages += common;
            if node.on_device {
                sight.device_pages = sight.pages;
                sight.idle_device_pages += if node.locks == 0 { common } else { 0 };
            }
            if common < node.pages {
                break;
            }
            above = at;
        }
        sight
    }

    /// Returns the strategy that orders leaves.
    pub fn strategy(&self) -> LeafStrategy {
        self.strategy
    }

    /// Returns the pages from the root to the end of a node.
    pub fn end(&self, node: u32) -> u64 {
        let node = &self.nodes[node as usize];
        u64::from(node.start) + u64::from(node.pages)
    }

    /// Returns the parent of a node; the root is its own parent.
    pub fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// Returns a number that orders siblings by the arrival of their first pages.
    pub fn slot(&self, node: u32) -> u64 {
        self.nodes[node as usize].used.slot
    }

    /// Returns the pages of the unlocked nodes on the path to a node.
    pub fn unlocked_above(&self, mut node: u32) -> u64 {
        let mut pages = 0;
        // Locked nodes are above unlocked ones.
        while node != ROOT && self.nodes[node as usize].locks == 0 {
            pages += u64::from(self.nodes[node as usize].pages);
            node = self.nodes[node as usize].parent;
        }
        pages
    }
}

//! Look-ups that change nothing: no node is split, none becomes recent.

use super::worth::LeafStrategy;
use super::{RadixTree, ROOT};

/// What a look-up would find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    /// Pages on the device.
    pub device_pages: u32,
    /// Of them those without a lock.
    pub idle_device_pages: u32,
    /// Pages of the whole path; those past the device's are on the host alone.
    pub pages: u32,
}

impl RadixTree {
    /// What is known of the request's first `limit` pages.
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

    /// Which leaf is worth least.
    pub fn strategy(&self) -> LeafStrategy {
        self.strategy
    }

    /// Pages from the root to the end of a node.
    pub fn end(&self, node: u32) -> u64 {
        let node = &self.nodes[node as usize];
        u64::from(node.start) + u64::from(node.pages)
    }

    /// The node above one, the root's itself.
    pub fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// A number by which siblings stand in the order in which their first pages came.
    pub fn slot(&self, node: u32) -> u64 {
        self.nodes[node as usize].used.slot
    }

    /// Pages from the root to the end of a node that nobody locks.
    pub fn unlocked_above(&self, mut node: u32) -> u64 {
        let mut pages = 0;
        // what is locked is above what is not
        while node != ROOT && self.nodes[node as usize].locks == 0 {
            pages += u64::from(self.nodes[node as usize].pages);
            node = self.nodes[node as usize].parent;
        }
        pages
    }
}

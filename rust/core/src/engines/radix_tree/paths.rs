//! Where a node stands: what a scheduler asks that weighs prefixes.

use super::{LeafOrder, RadixTree, ROOT};

impl RadixTree {
    /// Which leaf is worth least.
    pub fn leaf_order(&self) -> LeafOrder {
        self.order
    }

    /// The key of a request's page.
    pub fn key(&self, request: u32, page: u32) -> u64 {
        self.keys.key(request, page)
    }

    /// The node above one, the root's itself.
    pub fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// A number by which siblings stand in the order in which their first pages came.
    pub fn place(&self, node: u32) -> u64 {
        self.nodes[node as usize].place
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

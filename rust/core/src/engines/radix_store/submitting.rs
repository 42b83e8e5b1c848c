//! Copies under SGLang's own scheduler: what its tree decides is queued, and submitted as one copy.

use super::{Prefix, RadixStore};
use crate::convert::fit;
use crate::ids::BlockRange;

impl RadixStore {
    /// Loads the host hit of a prefix, if it is long enough and the device has capacity. The path is locked until
    /// the copy ends. Returns true if it is loaded.
    pub fn load_back(&mut self, request: u32, prefix: Prefix, now_ns: u64) -> bool {
        let before = self.evictions();
        let loaded = self.pool.load_path(prefix.host_node, prefix.host_tokens);
        self.start_writes();
        self.note_evicted(before, now_ns);
        let Some(pages) = loaded else {
            return false;
        };
        let start = fit::<u32>(prefix.tokens / self.page);
        let pages = BlockRange::new(start, start + pages);
        let tree = &mut self.pool.tree;
        self.copies
            .load_path(tree, request, pages, prefix.host_node);
        true
    }

    /// Locks the nodes that the tree has written; their copies are submitted later.
    pub(super) fn queue_writes(&mut self) {
        let sent = self.copies.orders.len();
        self.start_writes();
        self.copies.queue_from(sent);
    }

    /// Submits the queued writes as one copy.
    pub fn submit_writes(&mut self) {
        self.copies.submit_writes();
    }

    /// Submits the queued loads as one copy.
    pub fn submit_loads(&mut self) {
        self.copies.submit_loads();
    }
}

//! What a store in time is told of the host: the nodes that were written, and how often each page is there.

use super::RadixTree;
use crate::engines::key_index::KeyMap;

/// Pages `[start, end)` of a request that were written to the host, and the node that they were then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The node, which still ends with them.
    pub node: u32,
    /// A request that shows them.
    pub request: u32,
    /// The first of them.
    pub start: u32,
    /// Past the last of them.
    pub end: u32,
}

/// What is kept for a store in time.
#[derive(Debug, Default)]
pub(super) struct HostChanges {
    written: Vec<Written>,
    /// By key the pages on the host that have it. One key may stand at two places: an answer has the keys of the turn
    /// that follows, whose prompt may have parted from it inside a block of the trace.
    copies: KeyMap<u64, u32>,
}

impl RadixTree {
    fn host_changes(&mut self) -> Option<&mut HostChanges> {
        self.host.as_mut()?.host_changes.as_mut()
    }

    /// What was written to the host since the last call, in order.
    pub fn take_written(&mut self) -> Vec<Written> {
        let host_changes = self
            .host_changes()
            .map(|host_changes| std::mem::take(&mut host_changes.written));
        host_changes.unwrap_or_default()
    }

    /// How many pages on the host have a key.
    pub fn copies_on_host(&self, key: u64) -> u64 {
        let host_changes = self
            .host
            .as_ref()
            .and_then(|host| host.host_changes.as_ref());
        let copies = host_changes.and_then(|host_changes| host_changes.copies.get(&key));
        copies.map_or(0, |&copies| u64::from(copies))
    }

    /// Tells that a node has been written.
    pub(super) fn note_written(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let written = Written {
            node: at,
            request: node.request,
            start: node.start,
            end: node.start + node.pages,
        };
        if let Some(host_changes) = self.host_changes() {
            host_changes.written.push(written);
            self.note_on_host(at);
        }
    }

    /// Tells that a node has got its copy on the host.
    pub(super) fn note_on_host(&mut self, at: u32) {
        self.each_changed_page(at, |copies, key| *copies.entry(key).or_default() += 1);
    }

    /// Tells that a node is about to lose its copy on the host, where it has one.
    pub(super) fn note_dropped(&mut self, at: u32) {
        if !self.nodes[at as usize].on_host {
            return;
        }
        self.each_changed_page(at, |copies, key| match copies.get_mut(&key) {
            Some(there) if *there > 1 => *there -= 1,
            _ => {
                copies.remove(&key);
            }
        });
    }

    fn each_changed_page(&mut self, at: u32, notify: impl Fn(&mut KeyMap<u64, u32>, u64)) {
        let node = &self.nodes[at as usize];
        let (request, start, end) = (node.request, node.start, node.start + node.pages);
        let keys = self.keys.clone();
        if let Some(host_changes) = self.host_changes() {
            for page in start..end {
                notify(&mut host_changes.copies, keys.key(request, page));
            }
        }
    }
}

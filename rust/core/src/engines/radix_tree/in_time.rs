//! Host changes for a timed store: the nodes that were written, and the number of host copies of each page.

use super::host_changes::{HostChanges, Written};
use super::RadixTree;
use crate::engines::key_index::KeyMap;

impl RadixTree {
    fn host_changes(&mut self) -> Option<&mut HostChanges> {
        self.host.as_mut()?.host_changes.as_mut()
    }

    /// Returns the writes to the host since the last call, in order.
    pub fn take_written(&mut self) -> Vec<Written> {
        let host_changes = self
            .host_changes()
            .map(|host_changes| std::mem::take(&mut host_changes.written));
        host_changes.unwrap_or_default()
    }

    /// Returns the number of host pages that have a key.
    pub fn copies_on_host(&self, key: u64) -> u64 {
        let host_changes = self
            .host
            .as_ref()
            .and_then(|host| host.host_changes.as_ref());
        let copies = host_changes.and_then(|host_changes| host_changes.copies.get(&key));
        copies.map_or(0, |&copies| u64::from(copies))
    }

    /// Logs that a node has been written.
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

    /// Logs that a node has got its copy on the host.
    pub(super) fn note_on_host(&mut self, at: u32) {
        self.each_changed_page(at, |copies, key| *copies.entry(key).or_default() += 1);
    }

    /// Logs that a node is about to lose its copy on the host, if it has one.
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

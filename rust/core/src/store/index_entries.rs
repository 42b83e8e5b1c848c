//! A store's entries in the routers' index, alongside those of other machines.

use std::sync::Arc;

use super::board::{marks, IndexEntry};
use super::check::Violation;
use super::node::Node;
use super::Store;
use crate::ids::{BlockRange, NodeId};
use crate::keys::BlockKeys;

impl Store {
    /// Returns the keys of all requests.
    pub fn keys(&self) -> &Arc<BlockKeys> {
        &self.keys
    }

    /// Enters this store's prefixes into a router's index, and keeps them current. Cost: a walk over all
    /// runs.
    pub fn add_index_entry(&mut self, index_entry: IndexEntry) {
        for id in self.found_runs() {
            let Node { start, end, .. } = self.trie.nodes[id as usize];
            self.enter(&index_entry, id, BlockRange::new(start, end), true);
        }
        self.index_entries.push(index_entry);
    }

    /// Reports to routers that blocks of a run have their first copy, or have lost their last one.
    pub(super) fn notify(&self, id: NodeId, blocks: BlockRange, has: bool) {
        for index_entry in &self.index_entries {
            self.enter(index_entry, id, blocks, has);
        }
    }

    fn enter(&self, index_entry: &IndexEntry, id: NodeId, blocks: BlockRange, has: bool) {
        let owner = self.trie.nodes[id as usize].owner;
        for mark in marks(blocks) {
            index_entry.has_prefix(mark, self.keys.key(owner, mark - 1), has);
        }
    }

    fn found_runs(&self) -> impl Iterator<Item = NodeId> + '_ {
        let live = self.live_nodes().into_iter();
        live.filter(|&id| self.run(id).fastest().is_some())
    }

    /// Checks that the routers' entries match the store.
    pub(super) fn check_index_entries(&self) -> Result<(), Violation> {
        if self.index_entries.is_empty() {
            return Ok(());
        }
        let mut entries = Vec::new();
        for id in self.found_runs() {
            let Node {
                owner, start, end, ..
            } = self.trie.nodes[id as usize];
            let blocks = BlockRange::new(start, end);
            entries.extend(marks(blocks).map(|mark| (mark, self.keys.key(owner, mark - 1))));
        }
        entries.sort_unstable();
        if self
            .index_entries
            .iter()
            .any(|index_entry| index_entry.entries() != entries)
        {
            return Err("routers read other prefixes than there are".to_owned());
        }
        Ok(())
    }
}

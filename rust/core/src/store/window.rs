//! A trace that is read in windows: the requests whose ids a store still needs, and the keys of the next
//! window.

use std::sync::Arc;

use super::node::State;
use super::{NodeId, Store};
use crate::keys::BlockKeys;

impl Store {
    /// Returns the requests whose keys name runs of this store or that hold a lease. Cost: a walk over all
    /// runs.
    pub fn named_requests(&self) -> Vec<u32> {
        let runs = self.live_nodes().into_iter();
        let owners = runs.map(|id| self.trie.nodes[id as usize].owner);
        owners
            .chain(self.leases.iter().map(|(_, lease)| lease.request))
            .collect()
    }

    /// Discards every block on every tier. Returns false, nothing changed, while blocks are held or moved.
    pub fn clear(&mut self) -> bool {
        let mut held = self.leases.iter().count() + self.moves.iter().count();
        held += self.holds.iter().count();
        if held > 0 {
            return false;
        }
        let mut deepest_first: Vec<NodeId> = self.live_nodes();
        deepest_first.sort_by_key(|&id| (u32::MAX - self.trie.nodes[id as usize].end, id));
        for id in deepest_first {
            for tier in 0..self.tiers.len() {
                if self.copy(id, tier).state != State::Absent {
                    self.vacate(id, tier);
                }
            }
            self.unlink(id);
        }
        true
    }

    /// Hands out its keys, so that they can be extended; until `keep_keys` the store must not be used.
    pub fn lend_keys(&mut self) -> Arc<BlockKeys> {
        std::mem::take(&mut self.keys)
    }

    /// Takes keys that name all blocks that the previous ones did.
    pub fn keep_keys(&mut self, keys: Arc<BlockKeys>) {
        self.keys = keys;
    }

    /// Takes keys that name at least the requests of `named_requests` and those to come. Drops the times of
    /// accesses that no run or lease refers to.
    pub fn take_keys(&mut self, keys: Arc<BlockKeys>) {
        self.keys = keys;
        self.forget_accesses();
    }
}

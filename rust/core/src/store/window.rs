//! A trace that is read in windows: which requests' ids a store still needs, and the keys of the next window.

use std::sync::Arc;

use super::node::State;
use super::{NodeId, Store};
use crate::keys::BlockKeys;

impl Store {
    /// Requests whose keys name runs of this store or that hold a lease. Cost: a walk over all runs.
    pub fn named_requests(&self) -> Vec<u32> {
        let runs = self.live_nodes().into_iter();
        let owners = runs.map(|id| self.nodes[id as usize].owner);
        owners
            .chain(self.leases.iter().map(|(_, lease)| lease.request))
            .collect()
    }

    /// Lets go of every block on every tier; false, and no change, while some are held or moved.
    pub fn clear(&mut self) -> bool {
        let mut held = self.leases.iter().count() + self.moves.iter().count();
        held += self.holds.iter().count();
        if held > 0 {
            return false;
        }
        let mut deepest_first: Vec<NodeId> = self.live_nodes();
        deepest_first.sort_by_key(|&id| (u32::MAX - self.nodes[id as usize].end, id));
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

    /// Gives its keys away, so that they can grow; until `keep_keys` it can be asked nothing.
    pub fn lend_keys(&mut self) -> Arc<BlockKeys> {
        std::mem::take(&mut self.keys)
    }

    /// Takes keys that name all that its own did.
    pub fn keep_keys(&mut self, keys: Arc<BlockKeys>) {
        self.keys = keys;
    }

    /// Takes keys that name at least what `named_requests` told, and the requests to come; times of accesses
    /// that no run or lease remembers are forgotten.
    pub fn take_keys(&mut self, keys: Arc<BlockKeys>) {
        self.keys = keys;
        self.forget_accesses();
    }
}

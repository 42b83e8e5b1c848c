//! A trace that is read in windows: which requests' ids a store still needs, and the keys of the next window.

use std::sync::Arc;

use super::node::State;
use super::Store;
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

    /// Takes keys that name at least what `named_requests` told, and the requests to come; times of accesses
    /// that no run or lease remembers are forgotten.
    pub fn take_keys(&mut self, keys: Arc<BlockKeys>) {
        self.keys = keys;
        let live = self.live_nodes();
        let copies = live.iter().flat_map(|&id| self.copies_of(id));
        let resident = copies.filter(|copy| copy.state != State::Absent);
        let accesses = resident.map(|copy| copy.access);
        let leases = self.leases.iter().map(|(_, lease)| lease.access);
        let oldest = accesses.chain(leases).min().unwrap_or(self.access);
        let forgotten = oldest.saturating_sub(self.accessed_from);
        self.accessed_ns.drain(..forgotten as usize);
        self.accessed_from += forgotten;
    }
}

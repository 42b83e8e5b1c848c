//! Implementation of the contract of all stores for SGLang's tree.

use super::RadixStore;
use crate::store::contract::{
    BlockStore, LoadingStore, MovingStore, OffersComputed, PrefetchingStore,
};
use crate::store::{Answer, HoldId, LeaseId, MoveId, Order, Part, Times};

/// Empty hold, since the tree allocates and loads a request in one decision.
const NOTHING: HoldId = 0;

impl BlockStore for RadixStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        RadixStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        RadixStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        RadixStore::release(self, lease, now_ns)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        self.has_host().then_some(self)
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        self.has_host().then_some(self)
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        self.has_host().then_some(self)
    }

    fn prefetching(&mut self) -> Option<&mut dyn PrefetchingStore> {
        self.has_storage().then_some(self)
    }
}

impl PrefetchingStore for RadixStore {
    fn start_prefetch(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<u32> {
        RadixStore::start_prefetch(self, request, limit, now_ns)
    }

    fn is_prefetching(&self, request: u32) -> bool {
        RadixStore::is_prefetching(self, request)
    }

    fn stop_prefetch(&mut self, request: u32) -> Answer<()> {
        RadixStore::stop_prefetch(self, request)
    }
}

impl LoadingStore for RadixStore {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        RadixStore::match_prefix(self, request, limit)
    }

    fn protect(&mut self, _request: u32, _end: u32, _tier: usize) -> Answer<HoldId> {
        Ok(NOTHING)
    }

    fn unprotect(&mut self, _tier: usize, _hold: HoldId) -> Answer<()> {
        Ok(())
    }

    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        RadixStore::load(self, lease, to, after)
    }

    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        RadixStore::join(self, lease, to)
    }
}

impl MovingStore for RadixStore {
    fn has_orders(&self) -> bool {
        RadixStore::has_orders(self)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        RadixStore::take_orders(self)
    }

    fn set_times(&mut self, id: MoveId, times: Times) -> Answer<()> {
        RadixStore::set_times(self, id, times.ready_ns);
        Ok(())
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        RadixStore::finish_move(self, id)
    }
}

impl OffersComputed for RadixStore {
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        RadixStore::step_computed(self, leases, now_ns)
    }

    fn is_to_offer(&self, lease: LeaseId) -> bool {
        self.is_computing(lease)
    }
}

//! SGLang's default tree with HiCache's host tier of the contract of all stores.

use super::HiCacheStore;
use crate::store::contract::{
    BlockStore, LoadingStore, MovingStore, OffersComputed, PrefetchingStore,
};
use crate::store::{Answer, HoldId, LeaseId, MoveId, Order, Part, Times};

/// What is held while room is made: nothing, room and loads of a request are one decision of the tree.
const NOTHING: HoldId = 0;

impl BlockStore for HiCacheStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        HiCacheStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        HiCacheStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        HiCacheStore::release(self, lease, now_ns)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        Some(self)
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        Some(self)
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        Some(self)
    }

    fn prefetching(&mut self) -> Option<&mut dyn PrefetchingStore> {
        self.has_storage().then_some(self)
    }
}

impl PrefetchingStore for HiCacheStore {
    fn start_prefetch(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<u32> {
        HiCacheStore::start_prefetch(self, request, limit, now_ns)
    }

    fn is_prefetching(&self, request: u32) -> bool {
        HiCacheStore::is_prefetching(self, request)
    }

    fn stop_prefetch(&mut self, request: u32) -> Answer<()> {
        HiCacheStore::stop_prefetch(self, request)
    }
}

impl LoadingStore for HiCacheStore {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        HiCacheStore::match_prefix(self, request, limit)
    }

    fn protect(&mut self, _request: u32, _end: u32, _tier: usize) -> Answer<HoldId> {
        Ok(NOTHING)
    }

    fn unprotect(&mut self, _tier: usize, _hold: HoldId) -> Answer<()> {
        Ok(())
    }

    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        HiCacheStore::load(self, lease, to, after)
    }

    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        HiCacheStore::join(self, lease, to)
    }
}

impl MovingStore for HiCacheStore {
    fn has_orders(&self) -> bool {
        HiCacheStore::has_orders(self)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        HiCacheStore::take_orders(self)
    }

    fn set_times(&mut self, id: MoveId, times: Times) -> Answer<()> {
        HiCacheStore::set_times(self, id, times.ready_ns);
        Ok(())
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        HiCacheStore::finish_move(self, id)
    }
}

impl OffersComputed for HiCacheStore {
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        HiCacheStore::step_computed(self, leases, now_ns)
    }

    fn is_to_offer(&self, lease: LeaseId) -> bool {
        self.is_computing(lease)
    }
}

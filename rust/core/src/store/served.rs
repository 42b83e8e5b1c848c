//! What the tree of runs answers of the contract of all stores.

use super::contract::{
    BatchStore, BlockStore, LoadingStore, MachineStore, MovingStore, TierLosses, TierRoom,
};
use super::{Order, Part, Room, Store, Times, Violation};
use crate::error::Answer;
use crate::ids::{HoldId, LeaseId, MoveId};
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::tiers::GPU;

impl BatchStore for Store {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        Store::reserve(self, wanted, now_ns)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        Ok(self.lease(lease)?.depth)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()> {
        Store::commit(self, lease, to, ready)
    }

    fn spare_blocks(&self) -> u64 {
        let gpu = self.tier(GPU);
        if self.tiers() == 1 {
            gpu.free + gpu.evictable
        } else {
            gpu.free
        }
    }
}

impl MachineStore for Store {
    fn known_request(&self, request: u32) -> Answer<()> {
        Store::known_request(self, request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        Store::known_request(self, request)?;
        Ok(Store::peek(self, request, limit))
    }

    fn room(&self, tier: usize) -> Answer<TierRoom> {
        self.known_tier(tier)?;
        let tier = self.tier(tier);
        Ok(TierRoom {
            free: tier.free,
            active: tier.active,
            cached: tier.cached,
            in_flight: tier.in_flight,
            evictable: tier.evictable,
        })
    }

    fn losses(&self, tier: usize) -> Answer<TierLosses> {
        self.known_tier(tier)?;
        let tier = self.tier(tier);
        Ok(TierLosses {
            evicted: tier.evictions,
            overflowed: tier.overflowed,
            orphaned: tier.orphaned,
        })
    }

    fn merged_blocks(&self) -> u64 {
        self.merged_blocks
    }

    fn records(&self) -> &Records {
        &self.records
    }

    fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }

    fn check(&self) -> Result<(), Violation> {
        Store::check(self)
    }
}

impl BlockStore for Store {
    fn block_keys(&self) -> Option<&BlockKeys> {
        Some(self.keys())
    }

    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        Store::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        Store::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        Store::release(self, lease, now_ns)
    }

    fn discard(&mut self, request: u32, start: u32, end: u32) -> Answer<()> {
        Store::discard(self, request, start, end)
    }

    fn touch(&mut self, request: u32, end: u32) -> Answer<()> {
        Store::touch(self, request, end)
    }

    fn expire(&mut self, now_ns: u64) {
        Store::expire(self, now_ns);
    }

    fn tiered(&mut self) -> Option<&mut Store> {
        (self.tiers() > 1).then_some(self)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        (self.tiers() > 1).then_some(self)
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        (self.tiers() > 1).then_some(self)
    }
}

impl LoadingStore for Store {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        Store::match_prefix(self, request, limit)
    }

    fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId> {
        Store::protect(self, request, end, tier)
    }

    fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()> {
        Store::unprotect(self, tier, hold)
    }

    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        Store::load(self, lease, to, after)
    }

    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        Store::join(self, lease, to)
    }
}

impl MovingStore for Store {
    fn has_orders(&self) -> bool {
        Store::has_orders(self)
    }

    fn take_orders(&mut self) -> Vec<Order> {
        Store::take_orders(self)
    }

    fn set_times(&mut self, id: MoveId, times: Times) -> Answer<()> {
        Store::set_times(self, id, times)
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        Store::finish_move(self, id)
    }
}

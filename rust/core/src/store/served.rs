//! The contract of all stores, implemented by the tree of runs.

use super::contract::{
    own_methods, own_records, BatchStore, BlockStore, EvictionCounts, LoadingStore, MachineStore,
    MovingStore, TierOccupancy,
};
use super::reserve::LeaseBlocks;
use super::shared_prefixes::SharedPrefixes;
use super::{Order, Part, Reservation, Store, Times, Violation};
use crate::convert::fit;
use crate::error::Answer;
use crate::ids::{HoldId, LeaseId, MoveId};
use crate::keys::BlockKeys;
use crate::tiers::GPU;

impl BatchStore for Store {
    own_methods! {
        fn reserve(self: &mut Self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation>;
        fn commit(self: &mut Self, lease: LeaseId, to: u32, ready: Times) -> Answer<()>;
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        Ok(self.lease(lease)?.depth)
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
    own_methods! {
        fn known_request(self: &Self, request: u32) -> Answer<()>;
        fn check(self: &Self) -> Result<(), Violation>;
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        Store::known_request(self, request)?;
        Ok(Store::peek(self, request, limit))
    }

    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy> {
        self.known_tier(tier)?;
        let tier = self.tier(tier);
        Ok(TierOccupancy {
            free: tier.free,
            held: tier.active + tier.cached - tier.evictable,
            cached: tier.evictable,
            in_flight: tier.in_flight,
            private: tier.active,
        })
    }

    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts> {
        self.known_tier(tier)?;
        let tier = self.tier(tier);
        Ok(EvictionCounts {
            evicted: tier.evictions,
            overflowed: tier.overflowed,
            orphaned: tier.orphaned,
        })
    }

    fn merged_blocks(&self) -> u64 {
        self.merged_blocks
    }

    own_records!();
}

impl BlockStore for Store {
    own_methods! {
        fn acquire(self: &mut Self, request: u32, depth: u32) -> Answer<LeaseId>;
        fn abandon(self: &mut Self, lease: LeaseId) -> Answer<()>;
        fn release(self: &mut Self, lease: LeaseId, now_ns: u64) -> Answer<()>;
        fn discard(self: &mut Self, request: u32, start: u32, end: u32) -> Answer<()>;
        fn touch(self: &mut Self, request: u32, end: u32) -> Answer<()>;
        fn expire(self: &mut Self, now_ns: u64);
    }

    fn block_keys(&self) -> Option<&BlockKeys> {
        Some(self.keys())
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn shareable_blocks(&self, request: u32, found: u32) -> u32 {
        match self.shared.as_deref() {
            Some(SharedPrefixes { prefixes, .. }) => {
                let kept = prefixes.within_limit(&self.keys, request, found);
                let admission = &prefixes.admission;
                admission.admitted_blocks(&self.keys, request, kept)
            }
            None => found,
        }
    }

    fn count_prefixes(&mut self, request: u32, prompt_tokens: u64) {
        if let Some(shared) = self.shared.as_deref_mut() {
            let blocks = fit::<u32>(prompt_tokens / shared.block_size_tokens);
            shared
                .prefixes
                .admission
                .observe(&self.keys, request, blocks);
        }
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
    own_methods! {
        fn match_prefix(self: &Self, request: u32, limit: u32) -> Vec<Part>;
        fn protect(self: &mut Self, request: u32, end: u32, tier: usize) -> Answer<HoldId>;
        fn unprotect(self: &mut Self, tier: usize, hold: HoldId) -> Answer<()>;
        fn load(self: &mut Self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId>;
        fn join(self: &mut Self, lease: LeaseId, to: u32) -> Answer<()>;
    }
}

impl MovingStore for Store {
    own_methods! {
        fn has_orders(self: &Self) -> bool;
        fn take_orders(self: &mut Self) -> Vec<Order>;
        fn set_times(self: &mut Self, id: MoveId, times: Times) -> Answer<()>;
        fn finish_move(self: &mut Self, id: MoveId) -> Answer<()>;
    }
}

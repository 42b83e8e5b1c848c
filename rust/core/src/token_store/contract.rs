//! The contract of all stores, implemented by a count of tokens: a block is one token.

use super::TokenStore;
use crate::error::Answer;
use crate::ids::LeaseId;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::{
    gpu_alone, own_methods, BatchStore, BlockStore, EvictionCounts, MachineStore, SessionStore,
    TierOccupancy,
};
use crate::store::{Reservation, Times, Violation};

/// Capacity of an unbounded tier.
const UNBOUNDED: u64 = 1 << 60;

impl BatchStore for TokenStore {
    own_methods! {
        fn reserve(self: &mut Self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Reservation>;
        fn depth(self: &Self, lease: LeaseId) -> Answer<u32>;
        fn commit(self: &mut Self, lease: LeaseId, to: u32, ready: Times) -> Answer<()>;
    }

    fn spare_blocks(&self) -> u64 {
        let held = self.private + self.pinned();
        self.capacity.unwrap_or(UNBOUNDED).saturating_sub(held)
    }
}

impl MachineStore for TokenStore {
    own_methods! {
        fn known_request(self: &Self, request: u32) -> Answer<()>;
        fn check(self: &Self) -> Result<(), Violation>;
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        TokenStore::known_request(self, request)?;
        let found = TokenStore::peek(self, request, limit);
        Ok((found, found))
    }

    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy> {
        gpu_alone(tier)?;
        let shared = self.prefix_tokens() + self.kept.remainders();
        let capacity = self.capacity.unwrap_or(UNBOUNDED);
        Ok(TierOccupancy {
            free: capacity.saturating_sub(self.used()),
            held: self.private + self.pinned(),
            cached: shared - self.pinned(),
            in_flight: 0,
            private: self.private,
        })
    }

    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts> {
        gpu_alone(tier)?;
        Ok(EvictionCounts {
            evicted: self.evicted,
            ..EvictionCounts::default()
        })
    }

    fn merged_blocks(&self) -> u64 {
        self.merged
    }

    fn records(&self) -> &Records {
        &self.records
    }

    fn records_mut(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl BlockStore for TokenStore {
    own_methods! {
        fn acquire(self: &mut Self, request: u32, depth: u32) -> Answer<LeaseId>;
        fn abandon(self: &mut Self, lease: LeaseId) -> Answer<()>;
        fn release(self: &mut Self, lease: LeaseId, now_ns: u64) -> Answer<()>;
        fn have_same_block(self: &Self, a: u32, b: u32, block: u32) -> bool;
    }

    fn block_keys(&self) -> Option<&BlockKeys> {
        Some(&self.keys)
    }

    fn find(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<(u32, u32)> {
        TokenStore::known_request(self, request)?;
        let found = TokenStore::find(self, request, limit, now_ns);
        Ok((found, found))
    }

    fn sessions(&mut self) -> Option<&mut dyn SessionStore> {
        Some(self)
    }
}

impl SessionStore for TokenStore {
    own_methods! {
        fn session_tokens(self: &mut Self, session: i64, now_ns: u64) -> Option<u64>;
        fn observe(self: &mut Self, request: u32, prompt_tokens: u64);
        fn complete_turn(self: &mut Self, request: u32, session: i64, tokens: u64, now_ns: u64);
    }
}

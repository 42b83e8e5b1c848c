//! What a count of tokens answers of the contract of all stores: a block is one token.

use super::TokenStore;
use crate::error::Answer;
use crate::ids::LeaseId;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::{
    gpu_alone, BatchStore, BlockStore, MachineStore, SessionStore, TierLosses, TierRoom,
};
use crate::store::{Room, Times, Violation};

/// The capacity of a tier without bound.
const UNBOUNDED: u64 = 1 << 60;

impl BatchStore for TokenStore {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        TokenStore::reserve(self, wanted, now_ns)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        TokenStore::depth(self, lease)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()> {
        TokenStore::commit(self, lease, to, ready)
    }

    fn spare_blocks(&self) -> u64 {
        let held = self.private + self.pinned();
        self.capacity.unwrap_or(UNBOUNDED).saturating_sub(held)
    }
}

impl MachineStore for TokenStore {
    fn known_request(&self, request: u32) -> Answer<()> {
        TokenStore::known_request(self, request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        TokenStore::known_request(self, request)?;
        let found = TokenStore::peek(self, request, limit);
        Ok((found, found))
    }

    fn room(&self, tier: usize) -> Answer<TierRoom> {
        gpu_alone(tier)?;
        let cached = self.prefix_tokens() + self.kept.remainders();
        let capacity = self.capacity.unwrap_or(UNBOUNDED);
        Ok(TierRoom {
            free: capacity.saturating_sub(self.used()),
            active: self.private,
            cached,
            in_flight: 0,
            evictable: cached - self.pinned(),
        })
    }

    fn losses(&self, tier: usize) -> Answer<TierLosses> {
        gpu_alone(tier)?;
        Ok(TierLosses {
            evicted: self.evicted,
            ..TierLosses::default()
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

    fn check(&self) -> Result<(), Violation> {
        TokenStore::check(self)
    }
}

impl BlockStore for TokenStore {
    fn block_keys(&self) -> Option<&BlockKeys> {
        Some(&self.keys)
    }

    fn find(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<(u32, u32)> {
        TokenStore::known_request(self, request)?;
        let found = TokenStore::find(self, request, limit, now_ns);
        Ok((found, found))
    }

    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        TokenStore::acquire(self, request, depth)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        TokenStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        TokenStore::release(self, lease, now_ns)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        TokenStore::have_same_block(self, a, b, block)
    }

    fn sessions(&mut self) -> Option<&mut dyn SessionStore> {
        Some(self)
    }
}

impl SessionStore for TokenStore {
    fn session_tokens(&mut self, session: i64, now_ns: u64) -> Option<u64> {
        TokenStore::session_tokens(self, session, now_ns)
    }

    fn observe(&mut self, request: u32, prompt_tokens: u64) {
        TokenStore::observe(self, request, prompt_tokens);
    }

    fn complete_turn(&mut self, request: u32, session: i64, tokens: u64, now_ns: u64) {
        TokenStore::complete_turn(self, request, session, tokens, now_ns);
    }
}

//! The contract of all stores, implemented by a count of tokens: a block is one token.

use super::{Lease, TokenStore};
use crate::error::{Answer, StoreError};
use crate::ids::LeaseId;
use crate::keys::BlockKeys;
use crate::store::contract::{
    gpu_alone, own_methods, own_records, BatchStore, BlockStore, EvictionCounts, MachineStore,
    SessionStore, TierOccupancy,
};
use crate::store::{LeaseBlocks, Reservation, Times, Violation};

/// Capacity of an unbounded tier.
const UNBOUNDED: u64 = 1 << 60;

impl BatchStore for TokenStore {
    /// Reserves memory for new tokens of several leases, all or nothing, evicting the shortfall.
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        let mut total: u64 = 0;
        for &LeaseBlocks {
            lease,
            blocks: tokens,
        } in wanted
        {
            let owed = self.lease(lease)?.owed;
            total = total.saturating_add(tokens).saturating_add(owed);
        }
        if !self.evict_for(total, now_ns) {
            let forgets = wanted
                .iter()
                .any(|asked| self.forget_own(asked.lease, now_ns));
            if !(forgets && self.evict_for(total, now_ns)) {
                return Ok(Reservation::Refused);
            }
        }
        for &LeaseBlocks {
            lease,
            blocks: tokens,
        } in wanted
        {
            let lease = &mut self.leases[lease];
            lease.private += tokens + std::mem::take(&mut lease.owed);
        }
        self.private += total;
        Ok(Reservation::Ready)
    }

    /// Shares the computed tokens up to `to` in whole blocks, as far as prefixes are admitted.
    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()> {
        let size = self.block_size_tokens;
        let held = self.leases.get_mut(lease).ok_or(StoreError::NoSuchLease)?;
        let shared = u64::from(held.blocks) * size;
        if u64::from(to) > shared + held.private {
            return Err(StoreError::NotReserved);
        }
        held.depth = to;
        if shared + size > u64::from(to) {
            return Ok(());
        }
        let blocks = (u64::from(to) / size) as u32;
        let (last, entered) = self
            .prefixes
            .enter(&self.keys, held.request, held.last, blocks);
        let now_shared = u64::from(self.prefixes.length(last)) * size;
        (held.last, held.blocks) = (last, self.prefixes.length(last));
        held.private -= now_shared - shared;
        self.private -= now_shared - shared;
        self.merged += entered.merged * size;
        for _ in 0..entered.evicted {
            self.count_eviction(size, ready.ready_ns);
        }
        Ok(())
    }

    /// Returns the tokens that a lease reuses or has shared.
    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        Ok(self.lease(lease)?.depth)
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
        Ok(EvictionCounts::of(self.evicted))
    }

    fn merged_blocks(&self) -> u64 {
        self.merged
    }

    own_records!();
}

impl BlockStore for TokenStore {
    /// Holds the first `depth` tokens: those that a look-up found, or fewer.
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        self.known_request(request)?;
        let last = self
            .prefixes
            .hold_longest(&self.keys, request, self.whole_blocks(depth));
        let blocks = self.prefixes.length(last);
        let reused = u64::from(depth) - u64::from(blocks) * self.block_size_tokens;
        let (mut kept, mut taken) = (0, 0);
        if let Some(session) = self.session_of(request).filter(|_| reused > 0) {
            (kept, taken) = self.take_over(session, reused);
            self.private += taken;
        }
        Ok(self.leases.insert(Lease {
            request,
            last,
            blocks,
            first_blocks: blocks,
            depth,
            private: taken,
            owed: reused - taken,
            kept,
            taken,
        }))
    }

    /// Reverts an acquisition without a trace.
    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        let left = self.leases.remove(lease).ok_or(StoreError::NoSuchLease)?;
        self.private -= left.private;
        self.prefixes.end_hold(left.last);
        self.return_taken(&left, 0);
        Ok(())
    }

    /// Ends a lease and touches its prefix; its private tokens are free.
    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        let left = self.leases.remove(lease).ok_or(StoreError::NoSuchLease)?;
        self.private -= left.private;
        self.prefixes.end_use(left.last);
        self.return_taken(&left, now_ns);
        Ok(())
    }

    /// Returns true if two prompts have the block of a token in common.
    fn have_same_block(&self, a: u32, b: u32, token: u32) -> bool {
        self.keys.have_same_block(a, b, self.whole_blocks(token))
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

    fn count_prefixes(&mut self, request: u32, prompt_tokens: u64) {
        self.observe(request, prompt_tokens);
    }
}

impl SessionStore for TokenStore {
    own_methods! {
        fn session_tokens(self: &mut Self, session: i64, now_ns: u64) -> Option<u64>;
        fn complete_turn(self: &mut Self, request: u32, session: i64, tokens: u64, now_ns: u64);
    }
}

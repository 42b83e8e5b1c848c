//! Operations of a running batch on a pool of groups: capacity for the tokens of each step, keys, chunks.

use super::{GroupStore, Running};
use crate::engines::group_tier::FoundBelow;
use crate::engines::groups::admission::AdmissionLimits as Within;
use crate::store::contract::BatchStore;
use crate::store::{Answer, LeaseBlocks, LeaseId, Reservation, StoreError, Times};

impl BatchStore for GroupStore {
    /// Reserves capacity. `wanted` are tokens beyond the capacity that each lease has; all tokens up to there
    /// are computed.
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        if let [first] = wanted {
            if !self.leases.get(first.lease)?.admitted {
                return self.reserve_first(first.lease, first.blocks, now_ns);
            }
        }
        self.manager.take_given();
        let mut missing = 0u64;
        for &LeaseBlocks {
            lease,
            blocks: tokens,
        } in wanted
        {
            let request = self.leases.admitted(lease)?.request;
            let computed = self.running[request as usize].reserved_tokens;
            self.manager.computed_to(request, computed);
            self.manager.drop_unread(request);
            missing += u64::from(self.manager.lacking(request, computed + tokens));
        }
        if missing > u64::from(self.manager.pool.free_blocks()) {
            return Ok(Reservation::Refused);
        }
        let before = self.manager.pool.counts().evicted;
        for &LeaseBlocks {
            lease,
            blocks: tokens,
        } in wanted
        {
            let request = self.leases.request(lease);
            let running = &mut self.running[request as usize];
            running.reserved_tokens += tokens;
            self.manager.take(request, running.reserved_tokens);
        }
        let evicted = self.manager.pool.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(self.after_reserve(now_ns))
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        self.leases
            .depth(lease, |request| self.running[request as usize].depth)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let request = self.leases.admitted(lease)?.request;
        let end = self.tokens(to);
        if self.manager.lacking_positions(request, end) > 0 {
            return Err(StoreError::NotReserved);
        }
        let running = &mut self.running[request as usize];
        running.depth = running.depth.max(to);
        self.manager.give_keys(request, end);
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        if self.tier().is_some() {
            return 0; // Blocks that leave may go down, and allocated blocks may still be read.
        }
        u64::from(self.manager.pool.free_blocks())
    }

    fn chunk(&self, lease: LeaseId, computed: u64, target: u64, tokens: u64) -> Answer<u64> {
        if !self.has_states {
            return Ok(tokens);
        }
        let request = self.leases.admitted(lease)?.request;
        let running = &self.running[request as usize];
        let end = self.chunk_end(running, computed, target, tokens);
        Ok(end.saturating_sub(computed))
    }

    /// Releases blocks that are no longer read after `computed` tokens, then takes capacity up to `end` tokens.
    /// Returns false if too few blocks are free; released blocks stay released.
    fn grow_to(&mut self, lease: LeaseId, computed: u64, end: u64, now_ns: u64) -> Answer<bool> {
        let request = self.leases.admitted(lease)?.request;
        self.manager.computed_to(request, computed);
        let before = self.manager.pool.counts().evicted;
        if !self.manager.extend(request, end) {
            return Ok(false);
        }
        let running = &mut self.running[request as usize];
        running.reserved_tokens = running.reserved_tokens.max(end);
        let evicted = self.manager.pool.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(true)
    }

    fn lacking_blocks(&self, lease: LeaseId, tokens: u64) -> Answer<u64> {
        let request = self.leases.admitted(lease)?.request;
        Ok(self.manager.lacking_positions(request, tokens))
    }
}

impl GroupStore {
    /// Reserves the first capacity of a manually acquired lease: for all its tokens at once.
    fn reserve_first(&mut self, lease: LeaseId, tokens: u64, now_ns: u64) -> Answer<Reservation> {
        let asked = self.leases.get(lease)?;
        let mut found = self.manager.look_up(asked.request, self.tokens(asked.hits));
        if found.tokens < self.tokens(asked.hits) {
            return Err(StoreError::NotFound);
        }
        found.junction = 0;
        let known = found.tokens + tokens;
        let admission_limits = Within {
            blocks: self.manager.pool.free_blocks(),
            claimed_blocks: 0,
            loads_first: false,
            whole_tokens: None,
            in_flight_tokens: 0,
        };
        let running = Running {
            prompt_tokens: known.max(1),
            chunk_tokens: self.manager.limits().max_num_batched_tokens,
            ..Running::default()
        };
        let looked = FoundBelow {
            found,
            pool_tokens: found.tokens,
        };
        if !self.hold(lease, admission_limits, running, known, looked, now_ns) {
            return Ok(Reservation::Refused);
        }
        let brought = self.below.as_ref().map(|tier| tier.capacity_of(lease));
        Ok(match brought {
            Some(waits) if !waits.is_empty() => Reservation::Pending(waits),
            _ => Reservation::Ready,
        })
    }
}

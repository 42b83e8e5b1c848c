//! Implementation of the contract of all stores for vLLM's pool with an engine's tiers below.

use super::{prompt, TieredPool, NOTHING};
use crate::convert::fit;
use crate::engines::below::{Prompt, Site};
use crate::engines::leases::EngineLease;
use crate::ids::BlockRange;
use crate::store::contract::{
    own_records, BatchStore, BlockStore, EvictionCounts, LoadingStore, MachineStore, MovingStore,
    OffersComputed, TierOccupancy,
};
use crate::store::{
    add_part, Answer, HoldId, LeaseBlocks, LeaseId, MoveId, Order, Part, Reservation, StoreError,
    Times, Violation, GPU,
};

impl BatchStore for TieredPool {
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        let first = match *wanted {
            [asked] => Some(self.pool.leases.get(asked.lease)?).filter(|lease| !lease.admitted),
            _ => None,
        };
        let Some(waits) = self.take_blocks(wanted, now_ns)? else {
            return Ok(Reservation::Refused);
        };
        if let Some(EngineLease { request, .. }) = first {
            let last = fit::<u32>(self.tokens(request).saturating_sub(1) / self.block_size_tokens);
            let in_pool = self.pool.found(request, last);
            self.to_offer[request as usize] = self.below.admitted(prompt!(self, request), in_pool);
        }
        Ok(if waits.is_empty() {
            Reservation::Ready
        } else {
            Reservation::Pending(waits)
        })
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        self.pool
            .leases
            .depth(lease, |request| self.pool.keyed(request))
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let request = self.pool.leases.admitted(lease)?.request;
        self.pool.give_keys(request, to)
    }

    fn spare_blocks(&self) -> u64 {
        self.pool.spare_blocks()
    }
}

impl MachineStore for TieredPool {
    fn known_request(&self, request: u32) -> Answer<()> {
        self.pool.leases.known_request(request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        self.known_request(request)?;
        let in_pool = self.pool.found(request, limit);
        let askable = self.askable_below(request, limit);
        let found = self.below.found(prompt!(self, request), in_pool, askable);
        Ok((found, self.pool.ready(request, in_pool)))
    }

    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy> {
        self.known_tier(tier)?;
        if tier != GPU {
            return Ok(self.below.occupancy(&self.pool, tier));
        }
        let (free, held, cached, in_flight) = self.pool.occupancy();
        Ok(TierOccupancy {
            free,
            held,
            cached,
            in_flight,
            private: held,
        })
    }

    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts> {
        self.known_tier(tier)?;
        if tier != GPU {
            return Ok(self.below.eviction_counts(tier));
        }
        Ok(EvictionCounts::of(self.pool.evictions()))
    }

    own_records!();

    fn check(&self) -> Result<(), Violation> {
        self.pool.check()?;
        self.below.check(&self.pool)
    }
}

impl LoadingStore for TieredPool {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        let prompt = prompt!(self, request);
        // The pool always computes a prompt's last token, so its block comes from a tier.
        let whole = u64::from(limit) * self.block_size_tokens == self.tokens(request);
        let last = if whole { limit - 1 } else { limit };
        let mut in_pool = self.pool.found(request, last);
        if in_pool == last && last < limit && !self.below.brings(prompt, last) {
            in_pool = self.pool.found(request, limit);
        }
        let mut parts = Vec::new();
        for block in 0..in_pool {
            let by = self.pool.move_of(request, block);
            let block = BlockRange::new(block, block + 1);
            add_part(&mut parts, Part::of(GPU, by, block));
        }
        let below = self
            .below
            .parts(&self.pool, prompt, BlockRange::new(in_pool, limit));
        parts.extend(below);
        parts
    }

    fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId> {
        self.known_tier(tier)?;
        let keys = self.pool.keys_of(request, BlockRange::new(0, end));
        Ok(self.holds.insert(self.below.protect(keys)))
    }

    fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()> {
        self.known_tier(tier)?;
        let held = self.holds.remove(hold).ok_or(StoreError::NoSuchHold)?;
        self.below.in_use().release_keys(&held);
        Ok(())
    }

    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        let request = self.pool.leases.admitted(lease)?.request;
        let depth = self.pool.keyed(request);
        if to < depth {
            return Err(StoreError::NoBlocks);
        }
        let range = BlockRange::new(depth, to);
        let blocks = self.pool.blocks(request, range);
        if blocks.len() < (to - depth) as usize {
            return Err(StoreError::NotReserved);
        }
        let prompt = prompt!(self, request);
        let keys = prompt.chunk_keys_of_blocks(range);
        let site = Site {
            pool: &mut self.pool,
            records: &mut self.records,
            now_ns: self.now_ns,
        };
        let after = self.below.load(site, prompt, range, after);
        self.below.in_use().hold(&keys);
        let id = self.pool.copies.read(keys, blocks, &after);
        self.pool.give_keys(request, to)?;
        let before = self.to_offer[request as usize];
        self.to_offer[request as usize] = self.below.offers_after(before, to);
        Ok(id)
    }

    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        let request = self.pool.leases.admitted(lease)?.request;
        if to < self.pool.keyed(request) {
            return Err(StoreError::NoBlocks);
        }
        if self.pool.found(request, to) < to {
            return Err(StoreError::NotFound);
        }
        self.pool.join(request, to);
        Ok(())
    }
}

impl MovingStore for TieredPool {
    fn has_orders(&self) -> bool {
        self.pool.copies.has_orders()
    }

    fn take_orders(&mut self) -> Vec<Order> {
        self.pool.copies.take_orders()
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        if self.jobs.arrives(id) {
            return Ok(());
        }
        let copy = self.pool.copies.finish(id)?;
        if self.lmcache.as_mut().is_some_and(|own| own.arrives(id)) {
            return Ok(());
        }
        self.below.ended(&copy, id);
        Ok(())
    }
}

impl OffersComputed for TieredPool {
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        for &lease in leases {
            let request = self.pool.leases.get(lease)?.request;
            if self.to_offer[request as usize] != NOTHING {
                self.offer(request, self.pool.keyed(request), now_ns);
            }
        }
        Ok(())
    }

    fn is_to_offer(&self, lease: LeaseId) -> bool {
        let lease = self.pool.leases.get(lease);
        lease.is_ok_and(|lease| self.to_offer[lease.request as usize] != NOTHING)
    }
}

impl BlockStore for TieredPool {
    /// Records the hit of a request; its blocks are held at its reservation, in one step with it.
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        self.pool.leases.known_request(request)?;
        let found = self.pool.found(request, depth);
        self.pool.leases.give(request, depth, |_, _| found)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.pool.leases.abandon(lease)
    }

    /// Releases a request's blocks; the tiers may count the keys it used once more.
    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        let ended = self.pool.leases.end(lease)?;
        if ended.admitted {
            self.pool.release(ended.request);
        }
        self.to_offer[ended.request as usize] = NOTHING;
        self.below.finish(prompt!(self, ended.request));
        Ok(())
    }

    fn run_loops(&mut self, now_ns: u64) {
        self.below.run_loops(&mut self.records, now_ns);
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
}

//! Implementation of the contract of all stores for a pool of several cache groups.

use super::{GroupStore, Running};
use crate::convert::fit;
use crate::engines::copies::Copies;
use crate::engines::groups::admission::AdmissionLimits as Within;
use crate::store::contract::{
    gpu_alone, own_records, BlockStore, EvictionCounts, GroupAdmission, MachineStore, MovingStore,
    OffersComputed, TierOccupancy,
};
use crate::store::newcomer::{Brought, Entry, Newcomer};
use crate::store::{Answer, LeaseId, Violation, STAGING};

impl MachineStore for GroupStore {
    fn known_request(&self, request: u32) -> Answer<()> {
        self.leases.known_request(request)
    }

    /// Counts blocks of the alignment: those that every group can continue from, and those ready in the pool.
    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        self.known_request(request)?;
        let looked = self.look_up(request, self.tokens(limit));
        let blocks = |tokens| fit::<u32>(tokens / self.manager.align());
        let below = self.below.as_ref();
        let waits = below.is_some_and(|tier| tier.is_arriving(&self.manager, request, looked));
        let ready = if waits { 0 } else { looked.pool_tokens };
        Ok((blocks(looked.found.tokens), blocks(ready)))
    }

    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy> {
        let below = self.tier();
        let simple = self.simple.as_ref();
        match (tier, below, simple) {
            (STAGING, Some(below), _) => return Ok(below.occupancy()),
            (STAGING, None, Some(simple)) => return Ok(simple.occupancy()),
            _ => (),
        }
        gpu_alone(tier)?;
        let (free, held, cached) = GroupStore::occupancy(self);
        let copies = below.map(|tier| &tier.copies);
        let copies = copies.or(simple.map(|tier| &tier.copies));
        let arriving = copies.map_or(0, Copies::arriving_blocks);
        Ok(TierOccupancy {
            free,
            held: held - arriving,
            cached,
            in_flight: arriving,
            private: held - arriving,
        })
    }

    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts> {
        let evicted = match (tier, self.tier(), &self.simple) {
            (STAGING, Some(below), _) => below.evicted(),
            (STAGING, None, Some(simple)) => simple.evicted(),
            _ => {
                gpu_alone(tier)?;
                self.manager.pool.counts().evicted
            }
        };
        Ok(EvictionCounts::of(evicted))
    }

    fn merged_blocks(&self) -> u64 {
        self.manager.pool.merged
    }

    own_records!();

    fn check(&self) -> Result<(), Violation> {
        let simple = self.simple.as_ref();
        let copied = simple.into_iter().flat_map(|tier| tier.held_above());
        self.manager.check(copied)?;
        match (&self.below, simple) {
            (Some(tier), _) => tier.check(&self.manager.ref_counts()),
            (None, Some(tier)) => tier.check(&self.manager.ref_counts()),
            (None, None) => Ok(()),
        }
    }
}

impl BlockStore for GroupStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        self.known_request(request)?;
        let found = self.look_up(request, self.tokens(depth)).found.tokens / self.manager.align();
        self.leases.give(request, depth, |_, _| fit::<u32>(found))
    }

    /// Compare the key of the block's first tokens.
    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        let group = &self.manager.groups()[0];
        let unit_tokens = group.block_size / u64::from(group.units);
        let unit = self.tokens(block) / unit_tokens;
        group.keys.have_same_block(a, b, fit::<u32>(unit))
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.leases.abandon(lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        let ended = self.leases.end(lease)?;
        let below = self.below.as_ref().filter(|_| ended.admitted);
        if below.is_some_and(|tier| tier.frees_unread_first()) {
            let computed = self.running[ended.request as usize].reserved_tokens;
            self.manager.computed_to(ended.request, computed);
            self.manager.drop_unread(ended.request);
        }
        self.manager.release(ended.request);
        if let Some(tier) = &mut self.below {
            tier.release(lease, ended.request, ended.admitted);
        }
        Ok(())
    }

    fn groups(&mut self) -> Option<&mut dyn GroupAdmission> {
        Some(self)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        match (&mut self.below, &mut self.simple) {
            (Some(tier), _) => Some(&mut **tier),
            (None, Some(tier)) => Some(&mut **tier),
            (None, None) => None,
        }
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        self.tier().is_some().then_some(self)
    }
}

impl GroupAdmission for GroupStore {
    fn max_num_batched_tokens(&self) -> u64 {
        self.manager.limits().max_num_batched_tokens
    }

    fn admit(&mut self, asked: &Newcomer, now_ns: u64) -> Answer<Entry> {
        let (request, known) = (asked.request, asked.known_tokens);
        self.known_request(request)?;
        let limit = self.tokens(asked.matchable_blocks);
        let looked = self.look_up(request, limit);
        let found = looked.found;
        let lease = self.leases.give(
            request,
            fit::<u32>(found.tokens / self.manager.align()),
            |_, b| b,
        )?;
        let limits = self.manager.limits();
        let within = Within {
            blocks: self
                .manager
                .pool
                .free_blocks()
                .saturating_sub(fit::<u32>(asked.kept_blocks)),
            claimed_blocks: 0,
            loads_first: false,
            whole_tokens: asked.whole.then_some(known),
            in_flight_tokens: asked.steps_in_flight * limits.max_num_batched_tokens,
        };
        let running = Running::admitted(asked, found);
        let tokens = asked.step_tokens.min(known - found.tokens);
        let end = self.chunk_end(&running, found.tokens, known, tokens);
        let entry = if end <= found.tokens && end < known {
            Entry::NoTokens
        } else if found.tokens < asked.least_cached_tokens
            || self.manager.is_computed_now(request, found.tokens)
        {
            Entry::NotYet
        } else if self.hold_counted(lease, within, running, end, looked, now_ns) {
            let hit_blocks = fit::<u32>(found.tokens / self.manager.align());
            return Ok(Entry::Admitted {
                lease,
                hit_blocks,
                reserved_tokens: end,
            });
        } else {
            Entry::NoCapacity
        };
        self.leases.abandon(lease)?;
        Ok(entry)
    }

    fn brought(&mut self, lease: LeaseId) -> Option<Brought> {
        self.tier_mut().map(|tier| tier.brought(lease))
    }
}

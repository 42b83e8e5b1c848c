//! Pool above a tier: loads of an admission, blocks that go down, and requests that wait for a copy.

use super::GroupStore;
use crate::engines::group_tier::{FoundBelow, GroupTier, Site};
use crate::engines::groups::admission::AdmissionLimits as Within;
use crate::store::contract::OffersComputed;
use crate::store::{Answer, LeaseId, Reservation, StoreError};

impl GroupStore {
    /// Holds the found blocks of the pool and capacity up to `end` tokens, and loads the rest from the tier.
    pub(super) fn hold_and_bring(
        &mut self,
        lease: LeaseId,
        admission_limits: Within,
        prompt: u64,
        end: u64,
        looked: FoundBelow,
        now_ns: u64,
    ) -> bool {
        let request = self.leases.request(lease);
        let Some(mut tier) = self.below.take() else {
            return false;
        };
        let before = self.manager.pool.counts().evicted;
        self.manager.take_given();
        let (tables, lacking) = tier.lacking(&self.manager, request, looked);
        // Blocks to be loaded must not be evicted for blocks that leave the pool.
        let kept = tier.keep(&self.manager, request, &lacking);
        let held =
            self.manager
                .admit_over(admission_limits, request, prompt, looked.found, tables, end);
        if held {
            let evicted = self.manager.pool.counts().evicted - before;
            self.records.evicted_blocks(evicted, now_ns);
            let given = self.manager.take_given();
            tier.demote(self.site(now_ns), &given);
            tier.release_keys(&kept);
            let blocks: Vec<u32> = given.into_iter().map(|given| given.block).collect();
            tier.bring(self.site(now_ns), request, lease, looked, &lacking, &blocks);
        } else {
            tier.release_keys(&kept);
        }
        self.below = Some(tier);
        held
    }

    fn site(&mut self, now_ns: u64) -> Site<'_> {
        Site {
            manager: &mut self.manager,
            records: &mut self.records,
            now_ns,
        }
    }

    /// Returns the moves that must end before the blocks of a reservation are free; write evicted blocks to the
    /// tier.
    pub(super) fn after_reserve(&mut self, now_ns: u64) -> Reservation {
        let Some(mut tier) = self.below.take() else {
            return Reservation::Ready;
        };
        let given = self.manager.take_given();
        tier.demote(self.site(now_ns), &given);
        let waits = tier.readers(given.into_iter().map(|given| given.block));
        self.below = Some(tier);
        if waits.is_empty() {
            return Reservation::Ready;
        }
        Reservation::Pending(waits)
    }

    /// Returns the tier below, if any.
    pub fn tier(&self) -> Option<&GroupTier> {
        self.below.as_deref()
    }

    /// Returns the tier below for changes, if any.
    pub fn tier_mut(&mut self) -> Option<&mut GroupTier> {
        self.below.as_deref_mut()
    }

    /// Returns the number of the tier's blocks that the pool has too.
    pub fn duplicates(&self) -> u64 {
        let below = self
            .below
            .as_ref()
            .map(|tier| tier.duplicates(&self.manager));
        let simple = self.simple.as_ref();
        below.unwrap_or_else(|| simple.map_or(0, |tier| tier.duplicates(&self.manager)))
    }
}

impl OffersComputed for GroupStore {
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        let Some(mut tier) = self.below.take() else {
            return Ok(());
        };
        for &lease in leases {
            let Ok(held) = self.leases.get(lease) else {
                self.below = Some(tier);
                return Err(StoreError::NoSuchLease);
            };
            if tier.is_to_offer(held.request) {
                let computed = self.tokens(self.running[held.request as usize].depth);
                tier.offer(self.site(now_ns), held.request, computed);
            }
        }
        self.below = Some(tier);
        Ok(())
    }

    fn is_to_offer(&self, lease: LeaseId) -> bool {
        let (lease, tier) = (self.leases.get(lease), self.tier());
        tier.is_some_and(|tier| lease.is_ok_and(|lease| tier.is_to_offer(lease.request)))
    }
}

//! Implementation of the contract of all stores for SGLang's tree.

use super::RadixStore;
use crate::ids::BlockRange;
use crate::store::contract::{
    BlockStore, LoadingStore, MovingStore, OffersComputed, PrefetchingStore,
};
use crate::store::{add_part, Answer, HoldId, LeaseId, MoveId, Part, GPU, STAGING};

/// Empty hold, since the tree allocates and loads a request in one decision.
const NOTHING: HoldId = 0;

impl BlockStore for RadixStore {
    /// Records the hit of a request; it is held at its reservation, in one step with it.
    fn acquire(&mut self, request: u32, hits: u32) -> Answer<LeaseId> {
        let (tree, copies) = (&self.pool.tree, &self.copies);
        let found = |request, pages| copies.found(tree, request, pages);
        self.leases.give(request, hits, found)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.leases.abandon(lease)
    }

    /// Inserts everything that the request computed into the tree and releases the request.
    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        let before = self.evictions();
        let ended = self.leases.end(lease)?;
        if ended.admitted {
            let progress = std::mem::take(&mut self.progress[ended.request as usize]);
            self.check_in(ended.request, u64::from(progress.full));
            self.pool.release_request(ended.request);
        }
        self.note_evicted(before, now_ns);
        Ok(())
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        self.has_host().then_some(self)
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        self.has_host().then_some(self)
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        self.has_host().then_some(self)
    }

    fn prefetching(&mut self) -> Option<&mut dyn PrefetchingStore> {
        self.has_storage().then_some(self)
    }
}

impl LoadingStore for RadixStore {
    fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        let (on_device, pages) = self.extent(request, limit);
        let mut parts: Vec<Part> = Vec::new();
        for (tier, start, end) in [(GPU, 0, on_device), (STAGING, on_device, pages)] {
            for page in start..end {
                let by = self.copies.bringing(tier, request, page);
                add_part(
                    &mut parts,
                    Part::of(tier, by, BlockRange::new(page, page + 1)),
                );
            }
        }
        parts
    }

    fn protect(&mut self, _request: u32, _end: u32, _tier: usize) -> Answer<HoldId> {
        Ok(NOTHING)
    }

    fn unprotect(&mut self, _tier: usize, _hold: HoldId) -> Answer<()> {
        Ok(())
    }

    /// Loads the lease's next pages up to `to`, which were reserved. Returns the move.
    fn load(&mut self, lease: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        let request = self.ensure_capacity(lease, to)?;
        let progress = &mut self.progress[request as usize];
        let pages = BlockRange::new(progress.full.min(to), to);
        progress.full = to;
        Ok(self.copies.load(request, pages, after))
    }

    /// Counts pages as found that another request is loading; the lease holds them already.
    fn join(&mut self, lease: LeaseId, to: u32) -> Answer<()> {
        let request = self.ensure_capacity(lease, to)?;
        self.progress[request as usize].full = to;
        Ok(())
    }
}

impl OffersComputed for RadixStore {
    /// Inserts prompts of which a step computed less than a page; a prompt counts once it is computed.
    fn step_computed(&mut self, leases: &[LeaseId], now_ns: u64) -> Answer<()> {
        let before = self.evictions();
        for &lease in leases {
            let request = self.leases.get(lease)?.request;
            self.check_in_prompt(request);
        }
        self.note_evicted(before, now_ns);
        Ok(())
    }

    /// Returns true while a lease's prompt is not inserted completely.
    fn is_to_offer(&self, lease: LeaseId) -> bool {
        let lease = self.leases.get(lease);
        lease.is_ok_and(|lease| self.progress[lease.request as usize].is_computing)
    }
}

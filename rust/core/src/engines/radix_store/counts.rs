//! Counts and checks of the store for routing and metrics.

use super::storage_tier::{StorageTier, DISK};
use super::RadixStore;
use crate::store::contract::{gpu_alone, own_records, EvictionCounts, MachineStore, TierOccupancy};
use crate::store::{Answer, Violation, GPU, STAGING};

/// Pages evicted so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvictedPages {
    device: u64,
    host: u64,
}

impl RadixStore {
    /// Returns the pages evicted so far, from the device and from the host.
    pub(super) fn evictions(&self) -> EvictedPages {
        let tree = &self.pool.tree;
        EvictedPages {
            device: tree.counts().evicted_pages,
            host: tree.host_moves().evicted_pages,
        }
    }

    /// Records the evictions since an earlier count.
    pub(super) fn note_evicted(&mut self, before: EvictedPages, now_ns: u64) {
        let now = self.evictions();
        self.records
            .evicted_from(GPU, now.device - before.device, now_ns);
        self.records
            .evicted_from(STAGING, now.host - before.host, now_ns);
    }

    /// Returns true if a tier is the host tier.
    fn is_host(&self, tier: usize) -> bool {
        tier == STAGING && self.has_host()
    }

    fn device_occupancy(&self) -> TierOccupancy {
        let counts = self.pool.tree.counts();
        let free = self.pool.free_tokens() / self.page;
        let arriving = self.copies.arriving_pages();
        let private = self.device_pages.saturating_sub(free + counts.device_pages);
        let ready = counts.device_pages.saturating_sub(arriving);
        TierOccupancy {
            free,
            held: private + ready.saturating_sub(counts.evictable_pages),
            cached: counts.evictable_pages,
            in_flight: arriving,
            private,
        }
    }

    fn host_occupancy(&self) -> TierOccupancy {
        let counts = self.pool.tree.counts();
        let writing = self.copies.writing_pages(&self.pool.tree);
        // A write of a node that leaves the device, under write-back, does not lock the node.
        let unlocked = if self.pool.tree.writes_back() {
            writing
        } else {
            0
        };
        let cached = counts.idle_host_pages.saturating_sub(unlocked);
        TierOccupancy {
            free: self.pool.tree.host_free_pages(),
            held: counts.host_pages.saturating_sub(writing + cached),
            cached,
            in_flight: writing + self.pool.tree.reserved_host_pages(),
            private: 0,
        }
    }

    /// Checks that the computed part of a running request is in the tree or has capacity. Pages that are being
    /// loaded are in the tree before they arrive.
    fn check_progress(&self) -> Result<(), Violation> {
        let running = (0u32..).zip(&self.progress);
        for (request, progress) in running.filter(|&(request, _)| self.pool.holds(request)) {
            let full = u64::from(progress.full) * self.page;
            let filled = self.pool.filled_tokens(request);
            let protected = self.pool.protected_tokens(request);
            if filled < full || (full < protected && !self.has_host()) {
                return Err(format!(
                    "I3: request {request} has computed {full} tokens, {protected} in the tree, capacity for {filled}"
                ));
            }
        }
        Ok(())
    }

    /// Returns the storage, if the tier is a storage.
    fn stored(&self, tier: usize) -> Option<&StorageTier> {
        self.storage.as_ref().filter(|_| tier == DISK)
    }

    /// Returns the number of pages in the storage that the tree has too; for other tiers, the pages on both
    /// device and host.
    pub fn duplicates(&self, tier: usize) -> u64 {
        match self.stored(tier) {
            Some(storage) => self.pool.tree.count_stored(&storage.pages),
            None => self.pool.tree.counts().duplicate_pages,
        }
    }
}

impl MachineStore for RadixStore {
    fn known_request(&self, request: u32) -> Answer<()> {
        self.leases.known_request(request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        self.leases.known_request(request)?;
        Ok(self.look(request, limit))
    }

    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy> {
        if let Some(storage) = self.stored(tier) {
            let there = storage.pages.moves().pages;
            return Ok(TierOccupancy {
                free: storage.free_pages(),
                cached: there,
                ..TierOccupancy::default()
            });
        }
        if self.is_host(tier) {
            return Ok(self.host_occupancy());
        }
        gpu_alone(tier)?;
        Ok(self.device_occupancy())
    }

    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts> {
        let EvictedPages { device, host } = self.evictions();
        let evicted = match self.stored(tier) {
            Some(storage) => storage.pages.moves().evicted_pages,
            None if self.is_host(tier) => host,
            None => {
                gpu_alone(tier)?;
                device
            }
        };
        Ok(EvictionCounts::of(evicted))
    }

    fn merged_blocks(&self) -> u64 {
        self.pool.merged_tokens / self.page
    }

    own_records!();

    /// Cost: linear in nodes, requests and pages in flight.
    fn check(&self) -> Result<(), Violation> {
        self.pool.check_with(self.copies.kept())?;
        let kept = self.storage.iter().flat_map(StorageTier::kept);
        let kept = kept.chain(self.copies.host_locks());
        self.pool.tree.check_host_locks(kept)?;
        let (coming, reserved) = (
            self.storage.as_ref().map_or(0, StorageTier::coming),
            self.pool.tree.reserved_host_pages(),
        );
        if coming != reserved {
            return Err(format!(
                "I2: {reserved} pages are reserved for prefetches, {coming} to come"
            ));
        }
        self.check_progress()?;
        let (device, host) = (self.device_occupancy(), self.host_occupancy());
        let sum = |occupancy: TierOccupancy| {
            occupancy.free + occupancy.held + occupancy.cached + occupancy.in_flight
        };
        for (name, occupancy, capacity) in [
            ("device", device, self.device_pages),
            ("host", host, self.host_pages),
        ] {
            if sum(occupancy) != capacity {
                return Err(format!(
                    "I2: {occupancy:?} of {capacity} pages on the {name}"
                ));
            }
        }
        Ok(())
    }
}

//! vLLM's block pool as the GPU tier of a timed replica: leases, capacity and records over `block_pool`.
//!
//! A request has one lease at a time. Keys exist from scheduling on, so a batch commits when a step begins.

use std::sync::Arc;

use super::block_pool::BlockPool;
use super::leases::EngineLeases;
use crate::convert::fit;
use crate::keys::BlockKeys;
use crate::records::{Change, Records};
use crate::store::contract::{
    gpu_alone, own_records, BatchStore, BlockStore, EvictionCounts, MachineStore, TierOccupancy,
};
use crate::store::{Answer, LeaseBlocks, LeaseId, Reservation, StoreError, Times, Violation};

/// Blocks of one GPU under vLLM's rules.
#[derive(Debug)]
pub struct PoolStore {
    /// The pool itself: look-ups, keys and the free queue.
    pub pool: BlockPool,
    capacity: u64,
    leases: EngineLeases,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl PoolStore {
    /// A pool of free blocks.
    pub fn new(keys: Arc<BlockKeys>, capacity_blocks: u32) -> Self {
        Self {
            leases: EngineLeases::new(keys.requests()),
            pool: BlockPool::new(keys, capacity_blocks),
            capacity: u64::from(capacity_blocks),
            records: Records::default(),
        }
    }

    /// Returns the keys of the requests' blocks.
    pub fn keys(&self) -> &BlockKeys {
        self.pool.keys()
    }

    /// Sets keys that extend the previous ones and name requests to come; ids are below `ids`.
    pub fn keep_keys(&mut self, keys: Arc<BlockKeys>, ids: u32) {
        self.leases.know_requests(keys.requests());
        self.pool.keep_keys(keys, ids);
    }

    /// Starts to log the blocks that get keys and lose them.
    pub fn log_changes(&mut self) {
        self.pool.changes = Some(Vec::new());
    }

    /// Returns the changes since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let changes = self.pool.changes.as_mut().map(std::mem::take);
        let changes = changes.unwrap_or_default().into_iter();
        changes.map(|(stored, key)| (0, stored, key)).collect()
    }

    /// Removes the keys of all blocks. Returns false, with no change, while some are held.
    pub fn clear(&mut self) -> bool {
        self.pool.clear()
    }

    /// Returns block counts: free without a key, held, and free with a key.
    pub fn occupancy(&self) -> (u64, u64, u64) {
        let counts = self.pool.counts();
        let idle_keyed = counts.inserted - counts.evicted - self.pool.held_keyed();
        let free = u64::from(self.pool.free_blocks());
        (free - idle_keyed, self.capacity - free, idle_keyed)
    }
}

impl BatchStore for PoolStore {
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        let pool = &self.pool;
        let first = self
            .leases
            .asked(wanted, |r, blocks| pool.peek(r, blocks))?;
        let before = pool.counts().evicted;
        let free = u64::from(pool.free_blocks());
        let sum = wanted
            .iter()
            .try_fold(0u64, |sum, w| sum.checked_add(w.blocks));
        if sum.is_none_or(|sum| sum > free) {
            return Ok(Reservation::Refused);
        }
        // Several leases only ever extend, so the sum decides for all; a first reservation comes alone.
        if let (Some(lease), &[LeaseBlocks { lease: id, blocks }]) = (first, wanted) {
            let blocks = lease.hits + fit::<u32>(blocks);
            if !self.pool.allocate(lease.request, lease.hits, blocks) {
                return Ok(Reservation::Refused);
            }
            self.leases.admit(id);
        } else {
            for &LeaseBlocks { lease, blocks } in wanted {
                let request = self.leases.request(lease);
                let held = self.pool.held_blocks(request);
                self.pool.extend(request, held + fit::<u32>(blocks));
            }
        }
        let evicted = self.pool.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(Reservation::Ready)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        self.leases
            .depth(lease, |request| self.pool.keyed_prefix(request))
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let request = self.leases.admitted(lease)?.request;
        if to > self.pool.held_blocks(request) {
            return Err(StoreError::NotReserved);
        }
        self.pool.cache(request, to);
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        u64::from(self.pool.free_blocks())
    }
}

impl MachineStore for PoolStore {
    fn known_request(&self, request: u32) -> Answer<()> {
        self.leases.known_request(request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        self.leases.known_request(request)?;
        let found = self.pool.peek(request, limit);
        Ok((found, found))
    }

    fn occupancy(&self, tier: usize) -> Answer<TierOccupancy> {
        gpu_alone(tier)?;
        let (free, held, cached) = PoolStore::occupancy(self);
        Ok(TierOccupancy {
            free,
            held,
            cached,
            in_flight: 0,
            private: held,
        })
    }

    fn eviction_counts(&self, tier: usize) -> Answer<EvictionCounts> {
        gpu_alone(tier)?;
        Ok(EvictionCounts::of(self.pool.counts().evicted))
    }

    own_records!();

    fn check(&self) -> Result<(), Violation> {
        self.pool.check()
    }
}

impl BlockStore for PoolStore {
    /// Records the hit of a request; its blocks are held at its reservation, in one step with it.
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        let pool = &self.pool;
        let found = |request, blocks| pool.peek(request, blocks);
        self.leases.give(request, depth, found)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.leases.abandon(lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        let ended = self.leases.end(lease)?;
        self.pool.release(ended.request);
        Ok(())
    }
}

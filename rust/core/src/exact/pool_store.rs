//! vLLM's block pool as the GPU tier of a timed replica: leases, room and records over `block_pool`.
//!
//! A lease is its request. Keys exist from scheduling on, so a batch commits when a step begins.

use std::sync::Arc;

use super::block_pool::BlockPool;
use crate::batch::BatchStore;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::{Answer, LeaseId, Room, Times, Violation};

/// The blocks of one GPU under vLLM's rules.
#[derive(Debug)]
pub struct PoolStore {
    pool: BlockPool,
    capacity: u64,
    /// Blocks found at a request's admission, until its room is taken.
    hits: Vec<u32>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl PoolStore {
    /// A pool of free blocks.
    pub fn new(keys: Arc<BlockKeys>, capacity_blocks: u32) -> Self {
        let requests = keys.requests() as usize;
        Self {
            pool: BlockPool::new(keys, capacity_blocks),
            capacity: u64::from(capacity_blocks),
            hits: vec![0; requests],
            records: Records::default(),
        }
    }

    /// How many requests it knows.
    pub fn requests(&self) -> u32 {
        self.pool.requests()
    }

    /// How many of the request's leading blocks have a block here.
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        self.pool.peek(request, limit)
    }

    /// Notes what a request found; its blocks are held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> LeaseId {
        self.hits[request as usize] = hits;
        LeaseId::from(request)
    }

    /// Lets go of a request's blocks.
    pub fn release(&mut self, lease: LeaseId) {
        self.pool.release(lease as u32);
    }

    /// (free without a key, held, free with a key) blocks.
    pub fn room(&self) -> (u64, u64, u64) {
        let counts = self.pool.counts();
        let idle_keyed = counts.inserted - counts.evicted - self.pool.held_keyed();
        let free = u64::from(self.pool.free_blocks());
        (free - idle_keyed, self.capacity - free, idle_keyed)
    }

    /// Blocks that lost their key so far.
    pub fn evictions(&self) -> u64 {
        self.pool.counts().evicted
    }

    /// Checks the pool from scratch (I2, I3); the first violation is the error. Cost: linear in blocks.
    pub fn check(&self) -> Result<(), Violation> {
        self.pool.check()
    }

    fn take(&mut self, lease: u32, blocks: u32) -> bool {
        let held = self.pool.held_blocks(lease);
        if held > 0 {
            return self.pool.extend(lease, held + blocks);
        }
        let hits = self.hits[lease as usize];
        self.pool.allocate(lease, hits, hits + blocks)
    }
}

impl BatchStore for PoolStore {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        let before = self.pool.counts().evicted;
        let total: u64 = wanted.iter().map(|w| w.1).sum();
        if total > u64::from(self.pool.free_blocks()) {
            return Ok(Room::Refused);
        }
        // Several leases only ever extend, so the sum decides for all; a first admission comes alone.
        for &(lease, blocks) in wanted {
            if !self.take(lease as u32, blocks as u32) {
                return Ok(Room::Refused);
            }
        }
        let evicted = self.pool.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(Room::Ready)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        Ok(self.pool.keyed_prefix(lease as u32))
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        self.pool.cache(lease as u32, to);
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        u64::from(self.pool.free_blocks())
    }
}

//! vLLM's block pool as the GPU tier of a timed replica: leases, room and records over `block_pool`.
//!
//! A lease is its request. Keys exist from scheduling on, so a batch commits when a step begins.

use std::sync::Arc;

use super::block_pool::BlockPool;
use crate::batch::BatchStore;
use crate::digest::{Digest, Record};
use crate::keys::BlockKeys;
use crate::store::{LeaseId, Room};

/// The blocks of one GPU under vLLM's rules.
#[derive(Debug)]
pub struct PoolStore {
    pool: BlockPool,
    capacity: u64,
    /// Blocks found at a request's admission, until its room is taken.
    hits: Vec<u32>,
    digest: Digest,
    evictions_log: Option<Vec<(u64, usize, u64)>>,
}

impl PoolStore {
    /// A pool of free blocks.
    pub fn new(keys: Arc<BlockKeys>, capacity_blocks: u32) -> Self {
        let requests = keys.requests() as usize;
        Self {
            pool: BlockPool::new(keys, capacity_blocks),
            capacity: u64::from(capacity_blocks),
            hits: vec![0; requests],
            digest: Digest::default(),
            evictions_log: None,
        }
    }

    /// How many of the request's leading blocks have a block here.
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        self.pool.peek(request, limit)
    }

    /// Notes what a request found; its blocks are held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> LeaseId {
        self.hits[request as usize] = hits;
        request
    }

    /// Lets go of a request's blocks.
    pub fn release(&mut self, lease: LeaseId) {
        self.pool.release(lease);
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

    /// Adds a record that the store does not see by itself.
    pub fn note(&mut self, kind: u8, now_ns: u64, subject: u64, value: u64) {
        self.digest.record(kind, now_ns, subject, value);
    }

    /// The rolling hash of this machine's records so far.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Starts keeping (time, tier, blocks) of each eviction.
    pub fn log_evictions(&mut self) {
        self.evictions_log = Some(Vec::new());
    }

    /// Hands over the evictions logged since the last call.
    pub fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
        self.evictions_log
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    fn take(&mut self, lease: LeaseId, blocks: u32) -> bool {
        let held = self.pool.held_blocks(lease);
        if held > 0 {
            return self.pool.extend(lease, held + blocks);
        }
        let hits = self.hits[lease as usize];
        self.pool.allocate(lease, hits, hits + blocks)
    }
}

impl BatchStore for PoolStore {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Room {
        let before = self.pool.counts().evicted;
        let total: u64 = wanted.iter().map(|w| w.1).sum();
        if total > u64::from(self.pool.free_blocks()) {
            return Room::Refused;
        }
        // Several leases only ever extend, so the sum decides for all; a first admission comes alone.
        for &(lease, blocks) in wanted {
            if !self.take(lease, blocks as u32) {
                return Room::Refused;
            }
        }
        let evicted = self.pool.counts().evicted - before;
        if evicted > 0 {
            self.digest.record(Record::Evict as u8, now_ns, 0, evicted);
            if let Some(log) = &mut self.evictions_log {
                log.push((now_ns, 0, evicted));
            }
        }
        Room::Ready
    }

    fn depth(&self, lease: LeaseId) -> u32 {
        self.pool.keyed_prefix(lease)
    }

    fn commit(&mut self, lease: LeaseId, to: u32) {
        self.pool.cache(lease, to);
    }

    fn spare_blocks(&self) -> u64 {
        u64::from(self.pool.free_blocks())
    }
}

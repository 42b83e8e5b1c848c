//! Block pool with copies to and from the tiers below it, as the store of a timed machine uses it: the holders
//! of each block, the blocks being written, and the blocks still being read.
//!
//! Blocks released while they are still being copied down can be allocated again; their new owner waits for the
//! copy. Blocks are tracked individually, since two blocks of one key may be in different copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::copies::Copies;
use super::groups::pool::{Pool, NULL};
use super::groups::{Group, Kind};
use super::leases::EngineLeases;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use crate::store::{Answer, LeaseBlocks, MoveId, StoreError, Violation, NO_MOVE};

/// Pool, its leases, and the copies in flight.
#[derive(Debug)]
pub struct CopiedPool {
    keys: Arc<BlockKeys>,
    pool: Pool,
    pub(super) leases: EngineLeases,
    /// Tables of requests that have ended and have blocks to copy down.
    last: BTreeMap<u32, Vec<u32>>,
    /// For each request, the blocks that it holds, in order, and the number of them that went through
    /// `give_keys`.
    held: Vec<Vec<u32>>,
    keyed: Vec<u32>,
    capacity: u32,
    /// Copies in flight.
    pub copies: Copies,
}

impl CopiedPool {
    /// A pool of free blocks.
    pub fn new(keys: Arc<BlockKeys>, capacity_blocks: u32) -> Self {
        let requests = keys.requests();
        let group = Group {
            kind: Kind::Full,
            block_size: 1,
            keys: keys.clone(),
            units: 1,
        };
        Self {
            pool: Pool::new(std::slice::from_ref(&group), capacity_blocks),
            leases: EngineLeases::new(requests),
            last: BTreeMap::new(),
            held: vec![Vec::new(); requests as usize],
            keyed: vec![0; requests as usize],
            capacity: capacity_blocks,
            copies: Copies::new(capacity_blocks),
            keys,
        }
    }

    /// Returns the keys of the requests' blocks.
    pub fn keys(&self) -> &Arc<BlockKeys> {
        &self.keys
    }

    /// Returns the key of a request's block.
    pub fn key(&self, request: u32, block: u32) -> u64 {
        self.keys.key(request, block)
    }

    /// Returns the keys of a range of a request's blocks.
    pub fn keys_of(&self, request: u32, blocks: BlockRange) -> Vec<u64> {
        (blocks.start..blocks.end)
            .map(|block| self.key(request, block))
            .collect()
    }

    // -- contents

    /// Passes a request's leading resident blocks, at most `limit`, to `notify`; returns their number.
    fn each_found(&self, request: u32, limit: u32, mut notify: impl FnMut(u32)) -> u32 {
        let mut block = 0;
        while block < limit {
            let (key, run) = self.keys.run(request, block);
            let before = block;
            for found in self.pool.present_run(0, key, run.min(limit - block)) {
                notify(found);
                block += 1;
            }
            if block == before {
                break;
            }
        }
        block
    }

    /// Returns the number of a request's leading blocks, at most `limit`, that are resident.
    pub fn found(&self, request: u32, limit: u32) -> u32 {
        self.each_found(request, limit, |_| ())
    }

    /// Returns the number of blocks as `found`, and how many of them are free.
    pub fn found_idle(&self, request: u32, limit: u32) -> (u32, u64) {
        let mut idle = 0;
        let count = |block| idle += u64::from(self.pool.is_idle(block));
        let found = self.each_found(request, limit, count);
        (found, idle)
    }

    /// Returns true if a key has a resident block.
    pub fn has(&self, key: u64) -> bool {
        self.pool.find(0, key).0 != NULL
    }

    /// Returns the move that writes a resident block, [`NO_MOVE`] if the block is ready.
    pub fn move_of(&self, request: u32, block: u32) -> MoveId {
        self.copies
            .writer_of(self.pool.find(0, self.key(request, block)).0)
    }

    /// Returns the number of the `found` leading blocks, all resident, that are ready.
    pub fn ready(&self, request: u32, found: u32) -> u32 {
        if self.copies.arriving_blocks() == 0 {
            return found;
        }
        let mut blocks = 0..found;
        let unready = blocks.find(|&block| self.move_of(request, block) != NO_MOVE);
        unready.unwrap_or(found)
    }

    // -- capacity

    /// Returns the blocks that the next reservation gets without waiting for a copy; 0 while copies read
    /// blocks.
    pub fn spare_blocks(&self) -> u64 {
        if self.copies.none_leaves() {
            return u64::from(self.pool.free_blocks());
        }
        0
    }

    /// Takes new blocks for several leases, all or nothing. Returns the moves that still read them, ascending,
    /// or `None` if refused.
    pub fn reserve(&mut self, wanted: &[LeaseBlocks]) -> Answer<Option<Vec<MoveId>>> {
        let found = |request, blocks| self.found(request, blocks);
        let first = self.leases.asked(wanted, found)?;
        let free = u64::from(self.pool.free_blocks());
        let sum = wanted
            .iter()
            .try_fold(0u64, |sum, w| sum.checked_add(w.blocks));
        if sum.is_none_or(|sum| sum > free) {
            return Ok(None);
        }
        let mut waits = BTreeSet::new();
        if let (Some(lease), &[LeaseBlocks { lease: id, blocks }]) = (first, wanted) {
            let mut hits = Vec::with_capacity(lease.hits as usize);
            self.each_found(lease.request, lease.hits, |hit| hits.push(hit));
            let idle = hits.iter().filter(|&&hit| self.pool.is_idle(hit)).count();
            if blocks + idle as u64 > free {
                return Ok(None);
            }
            hits.iter().for_each(|&hit| self.pool.touch(hit));
            self.held[lease.request as usize] = hits;
            self.keyed[lease.request as usize] = lease.hits;
            self.leases.admit(id);
            self.take(lease.request, fit::<u32>(blocks), &mut waits);
        } else {
            for &LeaseBlocks { lease, blocks } in wanted {
                let request = self.leases.request(lease);
                self.take(request, fit::<u32>(blocks), &mut waits);
            }
        }
        Ok(Some(waits.into_iter().collect()))
    }

    fn take(&mut self, request: u32, blocks: u32, waits: &mut BTreeSet<MoveId>) {
        let (held, copies) = (&mut self.held[request as usize], &self.copies);
        self.pool.take(blocks, |block| {
            held.push(block);
            copies.add_readers(block, waits);
        });
    }

    /// Holds blocks that another request is loading, from the request's last block with a key up to `to`.
    pub fn join(&mut self, request: u32, to: u32) {
        let depth = self.keyed[request as usize];
        let keys = self.keys_of(request, BlockRange::new(depth, to));
        let blocks: Vec<u32> = keys.iter().map(|&key| self.pool.find(0, key).0).collect();
        blocks.iter().for_each(|&block| self.pool.touch(block));
        let at = depth as usize;
        self.held[request as usize].splice(at..at, blocks);
        self.keyed[request as usize] = to;
    }

    /// Gives a request's leading blocks their keys.
    pub fn give_keys(&mut self, request: u32, to: u32) -> Answer<()> {
        let held = &self.held[request as usize];
        if to as usize > held.len() {
            return Err(StoreError::NotReserved);
        }
        let mut block = self.keyed[request as usize];
        while block < to {
            let (key, run) = self.keys.run(request, block);
            let asked = run.min(to - block);
            let given = self
                .pool
                .give_keys(0, key, asked, |k| held[(block + k) as usize]);
            block += given;
        }
        let keyed = &mut self.keyed[request as usize];
        *keyed = to.max(*keyed);
        Ok(())
    }

    /// Returns the number of leading blocks that a request holds with their keys.
    pub fn keyed(&self, request: u32) -> u32 {
        self.keyed[request as usize]
    }

    /// Returns a range of the blocks that a request holds; fewer if it holds fewer. Of a kept table if it has ended.
    pub fn blocks(&self, request: u32, blocks: BlockRange) -> Vec<u32> {
        let held = self.last.get(&request);
        let held = held.unwrap_or(&self.held[request as usize]);
        held[blocks.start as usize..held.len().min(blocks.end as usize)].to_vec()
    }

    /// Keeps the table of a request that ends.
    pub fn keep_table(&mut self, request: u32) {
        let held = self.held[request as usize].clone();
        self.last.insert(request, held);
    }

    /// Forgets a table that was kept.
    pub fn forget_table(&mut self, request: u32) {
        self.last.remove(&request);
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        u64::from(self.pool.free_blocks())
    }

    /// Returns the keys of the free blocks in the order of allocation; `None` for a block without a key.
    pub fn free_queue(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.pool.free_queue().map(|key| key.map(|(_, key)| key))
    }

    /// Releases a request's blocks, last to first.
    pub fn release(&mut self, request: u32) {
        let held = std::mem::take(&mut self.held[request as usize]);
        self.pool.release(held.into_iter().rev());
        self.keyed[request as usize] = 0;
    }

    // -- counts

    /// Returns block counts: free without a key, held and ready, free with a key, held and being
    /// written.
    pub fn occupancy(&self) -> (u64, u64, u64, u64) {
        let idle_keyed = self.pool.idle_keyed();
        let free = u64::from(self.pool.free_blocks());
        let held = u64::from(self.capacity) - free;
        let arriving = self.copies.arriving_blocks();
        (free - idle_keyed, held - arriving, idle_keyed, arriving)
    }

    /// Returns the number of blocks that lost their key so far.
    pub fn evictions(&self) -> u64 {
        self.pool.counts().evicted
    }

    /// Checks holders, keys and copies from scratch (I2, I3). Cost: linear in blocks.
    pub fn check(&self) -> Result<(), Violation> {
        let mut ref_counts = vec![0u32; self.capacity as usize + 1];
        for &block in self.held.iter().flatten() {
            ref_counts[block as usize] += 1;
        }
        for (block, &counted) in ref_counts.iter().enumerate().skip(1) {
            if self.pool.ref_count(fit::<u32>(block)) != counted {
                return Err(format!(
                    "I3: block {block} has {counted} holders, counts others"
                ));
            }
        }
        let idle = ref_counts.iter().skip(1).filter(|&&counted| counted == 0);
        if idle.count() != self.pool.free_blocks() as usize {
            return Err(format!("I2: {} blocks are free", self.pool.free_blocks()));
        }
        self.copies.check(&ref_counts)
    }
}

//! A pool of blocks with copies to and from the tiers below it, as a timed machine's store has them: who holds which
//! blocks, which are being written, and which are still being read.
//!
//! Blocks given back while they are still being copied down are given out again, and who gets them waits for the
//! copy. Blocks are told apart one by one, since two of one key may be in different copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::groups::pool::{Pool, NULL};
use super::groups::{Group, Kind};
use super::key_index::KeyMap;
use super::leases::EngineLeases;
use crate::keys::BlockKeys;
use crate::store::{
    Answer, LeaseId, MoveId, Order, Slots, StoreError, Violation, GPU, NO_MOVE, STAGING,
};

/// A copy between two tiers: its keys, and the blocks of the pool that it writes or reads.
#[derive(Debug, Clone, Default)]
pub struct Copy {
    /// What is copied.
    pub keys: Vec<u64>,
    /// The pool's blocks that it writes, or reads; none where it is between lower tiers.
    pub blocks: Vec<u32>,
    /// The tier it is read from.
    pub from: usize,
    /// The tier it is written to.
    pub to: usize,
}

/// The pool, its leases, and the copies under way.
#[derive(Debug)]
pub struct CopiedPool {
    keys: Arc<BlockKeys>,
    pool: Pool,
    pub(super) leases: EngineLeases,
    /// By request the blocks that it holds, in order, and how many of them have been offered their keys.
    held: Vec<Vec<u32>>,
    keyed: Vec<u32>,
    moves: Slots<Copy>,
    orders: Vec<Order>,
    /// By block the move that writes it, and how many are written.
    arriving: Vec<MoveId>,
    arriving_blocks: u64,
    /// Keys of the tier below that are being written, by the move.
    writing: KeyMap<u64, MoveId>,
    /// By block the moves that read it.
    leaving: BTreeMap<u32, BTreeSet<MoveId>>,
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
            held: vec![Vec::new(); requests as usize],
            keyed: vec![0; requests as usize],
            moves: Slots::default(),
            orders: Vec::new(),
            arriving: vec![NO_MOVE; capacity_blocks as usize + 1],
            arriving_blocks: 0,
            writing: KeyMap::default(),
            leaving: BTreeMap::new(),
            keys,
        }
    }

    /// The keys of its requests' blocks.
    pub fn keys(&self) -> &Arc<BlockKeys> {
        &self.keys
    }

    /// The key of a request's block.
    pub fn key(&self, request: u32, block: u32) -> u64 {
        self.keys.key(request, block)
    }

    /// Those of some blocks.
    pub fn keys_of(&self, request: u32, (start, end): (u32, u32)) -> Vec<u64> {
        (start..end).map(|block| self.key(request, block)).collect()
    }

    // -- what is there

    /// How many of a request's leading blocks, at most `limit`, have a block here.
    pub fn found(&self, request: u32, limit: u32) -> u32 {
        let mut block = 0;
        while block < limit {
            let (key, run) = self.keys.run(request, block);
            let found = self.pool.present_run(0, key, run.min(limit - block));
            if found == 0 {
                break;
            }
            block += found;
        }
        block
    }

    /// Whether a key has a block here.
    pub fn has(&self, key: u64) -> bool {
        self.pool.find(0, key).0 != NULL
    }

    /// The move that writes a block that is found, [`NO_MOVE`] where it is ready.
    pub fn move_of(&self, request: u32, block: u32) -> MoveId {
        self.arriving[self.pool.find(0, self.key(request, block)).0 as usize]
    }

    /// How many of so many leading blocks, all found, are ready.
    pub fn ready(&self, request: u32, found: u32) -> u32 {
        if self.arriving_blocks == 0 {
            return found;
        }
        let mut blocks = 0..found;
        let unready = blocks.find(|&block| self.move_of(request, block) != NO_MOVE);
        unready.unwrap_or(found)
    }

    /// The move that writes a key to the tier below, [`NO_MOVE`] where it is there.
    pub fn written_by(&self, key: u64) -> MoveId {
        self.writing.get(&key).copied().unwrap_or(NO_MOVE)
    }

    /// Blocks of the tier below that are being written.
    pub fn writing_blocks(&self) -> u64 {
        self.writing.len() as u64
    }

    /// Whether something holds of all keys that are being written.
    pub fn all_written(&self, mut is_so: impl FnMut(u64) -> bool) -> bool {
        self.writing.keys().all(|&key| is_so(key))
    }

    // -- room

    /// Blocks that the next reservation gets without waiting for a copy: none, while there are copies that read some.
    pub fn spare_blocks(&self) -> u64 {
        if self.leaving.is_empty() {
            return u64::from(self.pool.free_blocks());
        }
        0
    }

    /// Takes new blocks for several leases, all or nothing; `None` refuses. The moves that still read them, ascending.
    pub fn reserve(&mut self, wanted: &[(LeaseId, u64)]) -> Answer<Option<Vec<MoveId>>> {
        let found = |request, blocks| self.found(request, blocks);
        let first = self.leases.asked(wanted, found)?;
        let free = u64::from(self.pool.free_blocks());
        let sum = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1));
        if sum.is_none_or(|sum| sum > free) {
            return Ok(None);
        }
        let mut waits = BTreeSet::new();
        if let (Some(lease), &[(id, blocks)]) = (first, wanted) {
            let keys = self.keys_of(lease.request, (0, lease.hits));
            let hits: Vec<u32> = keys.iter().map(|&key| self.pool.find(0, key).0).collect();
            let idle = hits.iter().filter(|&&hit| self.pool.is_idle(hit)).count();
            if blocks + idle as u64 > free {
                return Ok(None);
            }
            hits.iter().for_each(|&hit| self.pool.touch(hit));
            self.held[lease.request as usize] = hits;
            self.keyed[lease.request as usize] = lease.hits;
            self.leases.admit(id);
            self.take(lease.request, blocks as u32, &mut waits);
        } else {
            for &(lease, blocks) in wanted {
                let request = self.leases.request(lease);
                self.take(request, blocks as u32, &mut waits);
            }
        }
        Ok(Some(waits.into_iter().collect()))
    }

    fn take(&mut self, request: u32, blocks: u32, waits: &mut BTreeSet<MoveId>) {
        let (held, leaving) = (&mut self.held[request as usize], &self.leaving);
        self.pool.take(blocks, |block| {
            held.push(block);
            if let Some(reads) = leaving.get(&block) {
                waits.extend(reads);
            }
        });
    }

    /// Holds blocks that another request is loading, from where those with keys end up to `to`.
    pub fn join(&mut self, request: u32, to: u32) {
        let depth = self.keyed[request as usize];
        let keys = self.keys_of(request, (depth, to));
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

    /// How many leading blocks a request holds with their keys.
    pub fn keyed(&self, request: u32) -> u32 {
        self.keyed[request as usize]
    }

    /// Some of the blocks that a request holds; fewer where it holds fewer.
    pub fn blocks(&self, request: u32, (start, end): (u32, u32)) -> Vec<u32> {
        let held = &self.held[request as usize];
        held[start as usize..held.len().min(end as usize)].to_vec()
    }

    /// Lets go of a request's blocks, last to first.
    pub fn release(&mut self, request: u32) {
        let held = std::mem::take(&mut self.held[request as usize]);
        self.pool.release(held.into_iter().rev());
        self.keyed[request as usize] = 0;
    }

    // -- copies

    /// Starts a copy once these moves have ended.
    pub fn start(&mut self, copy: Copy, after: &[MoveId]) -> MoveId {
        let (from, to, blocks) = (copy.from, copy.to, copy.keys.len() as u64);
        let id = self.moves.insert(copy);
        self.orders.push(Order {
            id,
            from,
            to,
            blocks,
            after: after.to_vec(),
        });
        id
    }

    /// Reads keys of the tier below into blocks of the pool.
    pub fn read(&mut self, keys: Vec<u64>, blocks: Vec<u32>, after: &[MoveId]) -> MoveId {
        let copy = Copy {
            keys,
            blocks: blocks.clone(),
            from: STAGING,
            to: GPU,
        };
        let id = self.start(copy, after);
        self.arriving_blocks += blocks.len() as u64;
        for block in blocks {
            self.arriving[block as usize] = id;
        }
        id
    }

    /// Sends blocks of the pool down, of which `new` are put into the tier below.
    pub fn write(&mut self, keys: Vec<u64>, blocks: Vec<u32>, new: &[u64]) -> MoveId {
        let copy = Copy {
            keys,
            blocks: blocks.clone(),
            from: GPU,
            to: STAGING,
        };
        let id = self.start(copy, &[]);
        self.is_written(new, id);
        for block in blocks {
            self.leaving.entry(block).or_default().insert(id);
        }
        id
    }

    /// Notes that a move writes keys to the tier below.
    pub fn is_written(&mut self, keys: &[u64], by: MoveId) {
        self.writing.extend(keys.iter().map(|&key| (key, by)));
    }

    /// Ends a copy: what it wrote is ready, what it read may go. The copy as it was.
    pub fn finish(&mut self, id: MoveId) -> Answer<Copy> {
        let copy = self.moves.remove(id).ok_or(StoreError::NoSuchMove)?;
        if copy.to == GPU {
            self.arriving_blocks -= copy.blocks.len() as u64;
            for &block in &copy.blocks {
                self.arriving[block as usize] = NO_MOVE;
            }
            return Ok(copy);
        }
        for key in &copy.keys {
            if self.writing.get(key) == Some(&id) {
                self.writing.remove(key);
            }
        }
        for block in &copy.blocks {
            if let Some(reads) = self.leaving.get_mut(block) {
                reads.remove(&id);
                if reads.is_empty() {
                    self.leaving.remove(block);
                }
            }
        }
        Ok(copy)
    }

    /// Whether copies were decided since they were last taken.
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// The copies decided since the last call.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    // -- counts

    /// (free without a key, held and ready, free with a key, held and being written) blocks.
    pub fn room(&self) -> (u64, u64, u64, u64) {
        let idle_keyed = self.pool.idle_keyed();
        let free = u64::from(self.pool.free_blocks());
        let held = self.arriving.len() as u64 - 1 - free;
        let arriving = self.arriving_blocks;
        (free - idle_keyed, held - arriving, idle_keyed, arriving)
    }

    /// Blocks that lost their key so far.
    pub fn evictions(&self) -> u64 {
        self.pool.counts().evicted
    }

    /// Checks holders, keys and copies from scratch (I2, I3). Cost: linear in blocks.
    pub fn check(&self) -> Result<(), Violation> {
        let mut holders = vec![0u32; self.arriving.len()];
        for &block in self.held.iter().flatten() {
            holders[block as usize] += 1;
        }
        for (block, &counted) in holders.iter().enumerate().skip(1) {
            if self.pool.holders(block as u32) != counted {
                return Err(format!(
                    "I3: block {block} has {counted} holders, counts others"
                ));
            }
        }
        let idle = holders.iter().skip(1).filter(|&&counted| counted == 0);
        if idle.count() != self.pool.free_blocks() as usize {
            return Err(format!("I2: {} blocks are free", self.pool.free_blocks()));
        }
        let arriving = (0..).zip(&self.arriving).filter(|(_, &by)| by != NO_MOVE);
        let arriving: Vec<usize> = arriving.map(|(block, _): (usize, _)| block).collect();
        if arriving.len() as u64 != self.arriving_blocks
            || arriving.iter().any(|&block| holders[block] == 0)
        {
            return Err("I3: a block is loaded that nobody holds".into());
        }
        let down = self.moves.iter().filter(|(_, copy)| copy.to != GPU);
        let read: BTreeSet<(u32, MoveId)> = down
            .flat_map(|(id, copy)| copy.blocks.iter().map(move |&block| (block, id)))
            .collect();
        let reads = self.leaving.iter();
        let kept = reads.flat_map(|(&block, moves)| moves.iter().map(move |&id| (block, id)));
        if !read.iter().copied().eq(kept) {
            return Err("I3: a block is copied down and not kept".into());
        }
        Ok(())
    }
}

//! Copies in flight between a pool of blocks and the tiers below it, with the blocks being written and read.

use std::collections::{BTreeMap, BTreeSet};

use super::key_index::KeyMap;
use crate::store::{Answer, MoveId, Order, Slots, StoreError, Violation, GPU, NO_MOVE, STAGING};
use crate::tiers::Route;

/// A copy between two tiers: its keys, and the blocks of the pool that it writes or reads.
#[derive(Debug, Clone, Default)]
pub struct Copy {
    /// Keys that are copied.
    pub keys: Vec<u64>,
    /// Blocks of the pool that the copy writes or reads; empty between lower tiers.
    pub blocks: Vec<u32>,
    /// Source tier.
    pub from: usize,
    /// Target tier.
    pub to: usize,
}

/// Copies in flight, orders not taken yet, and the blocks and keys that the copies use.
#[derive(Debug)]
pub struct Copies {
    moves: Slots<Copy>,
    orders: Vec<Order>,
    /// For each block the move that writes it, and the number of blocks being written.
    arriving: Vec<MoveId>,
    arriving_blocks: u64,
    /// Keys of the tier below that are being written, with the move.
    writing: KeyMap<u64, MoveId>,
    /// For each block a move that reads it, and the number of blocks that have one.
    reader: Vec<MoveId>,
    leaving_blocks: u64,
    /// Further moves that read a block.
    further: BTreeMap<u32, BTreeSet<MoveId>>,
}

impl Copies {
    /// No copies, for a pool of `capacity_blocks` blocks numbered from 1.
    pub fn new(capacity_blocks: u32) -> Self {
        Self {
            moves: Slots::default(),
            orders: Vec::new(),
            arriving: vec![NO_MOVE; capacity_blocks as usize + 1],
            arriving_blocks: 0,
            writing: KeyMap::default(),
            reader: vec![NO_MOVE; capacity_blocks as usize + 1],
            leaving_blocks: 0,
            further: BTreeMap::new(),
        }
    }

    /// Returns the move that writes a block of the pool, [`NO_MOVE`] if the block is ready.
    pub fn writer_of(&self, block: u32) -> MoveId {
        self.arriving[block as usize]
    }

    /// Returns true if a block of the pool is being written.
    pub fn is_arriving(&self, block: u32) -> bool {
        self.arriving[block as usize] != NO_MOVE
    }

    /// Returns the number of keys that a move copies.
    pub fn keys_of(&self, id: MoveId) -> u64 {
        self.moves.get(id).map_or(0, |copy| copy.keys.len() as u64)
    }

    /// Returns true if a move writes blocks of the pool.
    pub fn writes_the_pool(&self, id: MoveId) -> bool {
        self.moves.get(id).is_some_and(|copy| copy.to == GPU)
    }

    /// Returns the blocks of the pool that a move writes or reads.
    pub fn blocks_of(&self, id: MoveId) -> &[u32] {
        self.moves.get(id).map_or(&[], |copy| &copy.blocks)
    }

    /// Returns the number of the pool's blocks that are being written.
    pub fn arriving_blocks(&self) -> u64 {
        self.arriving_blocks
    }

    /// Returns the move that writes a key to the tier below, [`NO_MOVE`] if the key is ready there.
    pub fn written_by(&self, key: u64) -> MoveId {
        self.writing.get(&key).copied().unwrap_or(NO_MOVE)
    }

    /// Returns the number of the lower tier's blocks that are being written.
    pub fn writing_blocks(&self) -> u64 {
        self.writing.len() as u64
    }

    /// Returns true if a predicate holds for all keys that are being written.
    pub fn all_written(&self, mut is_so: impl FnMut(u64) -> bool) -> bool {
        self.writing.keys().all(|&key| is_so(key))
    }

    /// Returns true if no block of the pool is being read.
    pub fn none_leaves(&self) -> bool {
        self.leaving_blocks == 0
    }

    /// Adds the moves that still read a block.
    pub fn add_readers(&self, block: u32, waits: &mut BTreeSet<MoveId>) {
        waits.extend(self.readers_of(block));
    }

    fn readers_of(&self, block: u32) -> impl Iterator<Item = MoveId> + '_ {
        let first = self.reader[block as usize];
        let further = self.further.get(&block).into_iter().flatten();
        let first = Some(first).filter(|&id| id != NO_MOVE);
        first.into_iter().chain(further.copied())
    }

    /// Starts a copy after given moves.
    fn start(&mut self, copy: Copy, after: &[MoveId]) -> MoveId {
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

    /// Starts a copy between two lower tiers after given moves.
    pub fn below(&mut self, keys: Vec<u64>, route: Route, after: &[MoveId]) -> MoveId {
        let copy = Copy {
            keys,
            blocks: Vec::new(),
            from: route.from,
            to: route.to,
        };
        self.start(copy, after)
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

    /// Copies blocks of the pool to the tier below, where `new` keys are inserted.
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
            match std::mem::replace(&mut self.reader[block as usize], id) {
                NO_MOVE => self.leaving_blocks += 1,
                other if other == id => (),
                other => drop(self.further.entry(block).or_default().insert(other)),
            }
        }
        id
    }

    /// Records that a move writes keys to the tier below.
    pub fn is_written(&mut self, keys: &[u64], by: MoveId) {
        self.writing.extend(keys.iter().map(|&key| (key, by)));
    }

    /// Finishes a copy: the blocks written are ready, the blocks read may be reused. Returns the copy.
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
            self.read_ends(*block, id);
        }
        Ok(copy)
    }

    /// Removes a move from those that read a block.
    fn read_ends(&mut self, block: u32, id: MoveId) {
        let mut further = self.further.remove(&block).unwrap_or_default();
        further.remove(&id);
        let reader = &mut self.reader[block as usize];
        if *reader == id {
            *reader = further.pop_first().unwrap_or(NO_MOVE);
            self.leaving_blocks -= u64::from(*reader == NO_MOVE);
        }
        if !further.is_empty() {
            self.further.insert(block, further);
        }
    }

    /// Returns true if copies were decided since the last `take_orders`.
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Returns the copies decided since the last call.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Checks that blocks of the pool with the given reference counts are kept while they are copied (I3).
    pub fn check(&self, ref_counts: &[u32]) -> Result<(), Violation> {
        let arriving = (0..).zip(&self.arriving).filter(|(_, &by)| by != NO_MOVE);
        let arriving: Vec<usize> = arriving.map(|(block, _): (usize, _)| block).collect();
        if arriving.len() as u64 != self.arriving_blocks
            || arriving.iter().any(|&block| ref_counts[block] == 0)
        {
            return Err("I3: a block without a holder is being loaded".into());
        }
        let down = self.moves.iter().filter(|(_, copy)| copy.to != GPU);
        let read: BTreeSet<(u32, MoveId)> = down
            .flat_map(|(id, copy)| copy.blocks.iter().map(move |&block| (block, id)))
            .collect();
        let blocks = (0..).zip(&self.reader).map(|(block, _): (u32, _)| block);
        let kept = blocks.flat_map(|block| self.readers_of(block).map(move |id| (block, id)));
        let leaving = self.reader.iter().filter(|&&id| id != NO_MOVE).count() as u64;
        if read != kept.collect() || leaving != self.leaving_blocks {
            return Err("I3: a block is copied down and not kept".into());
        }
        Ok(())
    }
}

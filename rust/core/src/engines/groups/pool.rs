//! One pool of equal blocks that any group may take: the free queue, and the keys of each group.
//!
//! Blocks are numbered from 1; `NULL` marks a table position without a block. As in `block_pool`, free blocks are in
//! one queue, and a block keeps its key until it is taken again. A look-up of a key returns the block inserted first.

use std::collections::VecDeque;

use crate::convert::fit;
use crate::engines::block_pool::PoolCounts;
use crate::engines::key_index::KeyIndex;
use crate::ids::NONE;

use super::tables::Table;
use super::{Group, Kind};

/// Sentinel: both ends of the queue, and a table position without a block.
pub const NULL: u32 = 0;

/// Fields that every access to a block touches, kept together in one cache line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// Links of the queue.
    pub previous: u32,
    pub next: u32,
    pub ref_count: u32,
    /// Slot of the key in its group's index, `NONE` without a key.
    pub slot: u32,
}

/// A key of a cache group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupKey {
    /// The group.
    pub group: usize,
    /// The key there.
    pub key: u64,
}

/// An allocated block, and the key that it had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The block.
    pub block: u32,
    /// Its earlier key, if it had one.
    pub key: Option<GroupKey>,
}

/// Blocks, reference counts, queue and keys.
#[derive(Debug)]
pub struct Pool {
    /// Index of the keys of each group.
    pub(super) indexes: Vec<KeyIndex>,
    /// Blocks; the first entry is the sentinel of the queue.
    pub(super) nodes: Vec<Node>,
    /// Group of a block's key, and the next duplicate.
    pub(super) group: Vec<u8>,
    pub(super) duplicate: Vec<u32>,
    /// Duplicate before a block; for the first block, the last duplicate.
    before: Vec<u32>,
    pub(super) free: u32,
    pub(super) counts: PoolCounts,
    /// Blocks that were released since another block had their key.
    pub merged: u64,
    /// For each group, blocks that got a key, and blocks that lost it.
    by_group: Vec<(u64, u64)>,
    /// Number of held blocks with a key.
    pub(super) held_keyed: u64,
    /// Blocks allocated since the log was last taken, if logged.
    pub(super) given: Option<Vec<Given>>,
    /// For each group, a bit for each named key that a block has had; empty for full attention, which keeps
    /// all.
    had: Vec<Vec<u64>>,
}

impl Pool {
    /// A pool of free blocks without keys.
    pub fn new(groups: &[Group], capacity_blocks: u32) -> Self {
        let nodes = capacity_blocks + 1;
        let index = |g: &Group| KeyIndex::new(g.keys.distinct_ids(), g.keys.blocks_per_id());
        Self {
            indexes: groups.iter().map(index).collect(),
            nodes: (0..nodes)
                .map(|block| Node {
                    previous: if block == 0 {
                        capacity_blocks
                    } else {
                        block - 1
                    },
                    next: if block == capacity_blocks {
                        0
                    } else {
                        block + 1
                    },
                    ref_count: 0,
                    slot: NONE,
                })
                .collect(),
            group: vec![0; nodes as usize],
            duplicate: vec![NONE; nodes as usize],
            before: vec![NONE; nodes as usize],
            free: capacity_blocks,
            counts: PoolCounts::default(),
            merged: 0,
            by_group: vec![(0, 0); groups.len()],
            held_keyed: 0,
            given: None,
            had: groups.iter().map(bits).collect(),
        }
    }

    /// Returns true if a block ever had a key of a group; full attention keeps all.
    pub fn had(&self, group: usize, key: u64) -> bool {
        if self.had[group].is_empty() {
            return true;
        }
        let word = self.had[group].get((key / 64) as usize);
        word.is_some_and(|word| word >> (key % 64) & 1 == 1)
    }

    /// Returns the number of blocks in the queue.
    pub fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Returns the block for a key of a group, or `NULL`. If no key of its id is known, the second number
    /// counts the units before it that have no block either.
    pub fn find(&self, group: usize, key: u64) -> (u32, u32) {
        match self.indexes[group].find(key) {
            // Keys that only one request can have are mixed with named keys.
            None if key >> 63 == 1 => (NULL, 0),
            None => (NULL, self.indexes[group].offset_of(key)),
            Some((slot, _)) => match self.indexes[group].first(slot) {
                NONE => (NULL, 0),
                block => (block, 0),
            },
        }
    }

    /// Returns the blocks of the `limit` keys from `key` on, up to the first key without one, or to the end of an id.
    pub fn present_run(
        &self,
        group: usize,
        key: u64,
        limit: u32,
    ) -> impl Iterator<Item = u32> + '_ {
        let index = &self.indexes[group];
        let (slot, chunk) = index.find(key).unwrap_or((0, 0));
        let blocks = (slot..slot + chunk.min(limit)).map(|slot| index.first(slot));
        blocks.take_while(|&block| block != NONE)
    }

    /// Appends the blocks of up to `limit` consecutive keys from `key` on to `into`; all of them are cached.
    /// Returns their number: a run ends with the trace id that the first key belongs to.
    pub fn run_of(&self, group: usize, key: u64, limit: u32, into: &mut VecDeque<u32>) -> u32 {
        let index = &self.indexes[group];
        let (slot, chunk) = index.find(key).expect("hits are resident");
        let run = chunk.min(limit);
        into.extend((slot..slot + run).map(|s| index.first(s)));
        run
    }

    /// Gives blocks the keys from `key` on, except `NULL` and blocks that have a key. Returns the number of the
    /// `limit` keys that lie in the first key's id.
    pub fn give_keys(
        &mut self,
        group: usize,
        key: u64,
        limit: u32,
        block: impl Fn(u32) -> u32,
    ) -> u32 {
        let run = self.indexes[group].run(key).min(limit);
        let without =
            |pool: &Self, block: u32| block != NULL && pool.nodes[block as usize].slot == NONE;
        let Some(first) = (0..run).find(|&k| without(self, block(k))) else {
            return run;
        };
        let (slot, _) = self.indexes[group].open(key);
        for k in first..run {
            let block = block(k);
            if without(self, block) {
                self.insert(group, slot + k, block);
            }
        }
        run
    }

    /// Replaces a table's blocks without a key by the blocks that have `run` keys from `key` on, all of one id.
    /// The replaced blocks are released (the tree's rules).
    pub fn merge(&mut self, group: usize, key: u64, run: u32, table: &mut Table, at: u32) {
        let Some((slot, chunk)) = self.indexes[group].find(key) else {
            return;
        };
        for k in 0..chunk.min(run) {
            let (first, own) = (self.indexes[group].first(slot + k), table.block(at + k));
            if first == NONE || own == NULL || self.nodes[own as usize].slot != NONE {
                continue;
            }
            self.touch(first);
            self.release(std::iter::once(own));
            table.blocks[(at + k - table.start) as usize] = first;
            self.merged += 1;
        }
    }

    /// Returns the reference count of a block.
    pub fn ref_count(&self, block: u32) -> u32 {
        self.nodes[block as usize].ref_count
    }

    /// Returns the number of free blocks with a key.
    pub fn idle_keyed(&self) -> u64 {
        self.counts.inserted - self.counts.evicted - self.held_keyed
    }

    /// Returns true if a block is in the queue.
    pub fn is_idle(&self, block: u32) -> bool {
        self.nodes[block as usize].ref_count == 0
    }

    /// Holds a block that was found.
    pub fn touch(&mut self, block: u32) {
        if self.is_idle(block) {
            let (before, after) = (
                self.nodes[block as usize].previous,
                self.nodes[block as usize].next,
            );
            self.nodes[before as usize].next = after;
            self.nodes[after as usize].previous = before;
            self.free -= 1;
            self.held_keyed += 1;
        }
        self.nodes[block as usize].ref_count += 1;
    }

    /// Takes blocks from the front of the queue, which must have enough; blocks with a key lose it.
    pub fn take(&mut self, number: u32, mut into: impl FnMut(u32)) {
        let mut block = self.nodes[NULL as usize].next;
        for _ in 0..number {
            let after = self.nodes[block as usize].next;
            self.nodes[block as usize].ref_count = 1;
            let key = self.given.as_ref().and_then(|_| self.key_of(block));
            if let Some(given) = &mut self.given {
                given.push(Given { block, key });
            }
            if self.nodes[block as usize].slot != NONE {
                self.evict(block);
            }
            into(block);
            block = after;
        }
        self.nodes[NULL as usize].next = block;
        self.nodes[block as usize].previous = NULL;
        self.free -= number;
        self.counts.taken += u64::from(number);
    }

    /// Releases blocks in the given order. Blocks without another holder join the queue: those without a key at
    /// the front, as a group, and the others at the end.
    pub fn release(&mut self, blocks: impl Iterator<Item = u32>) {
        let mut front_end = NULL;
        for block in blocks.filter(|&block| block != NULL) {
            self.nodes[block as usize].ref_count -= 1;
            if self.nodes[block as usize].ref_count > 0 {
                continue;
            }
            self.free += 1;
            if self.nodes[block as usize].slot == NONE {
                self.link(front_end, block);
                front_end = block;
            } else {
                self.held_keyed -= 1;
                self.link(self.nodes[NULL as usize].previous, block);
            }
        }
    }

    fn link(&mut self, before: u32, block: u32) {
        let after = self.nodes[before as usize].next;
        self.nodes[block as usize].previous = before;
        self.nodes[block as usize].next = after;
        self.nodes[before as usize].next = block;
        self.nodes[after as usize].previous = block;
    }

    /// Gives a held block without a key the key of a slot.
    fn insert(&mut self, group: usize, slot: u32, block: u32) {
        self.nodes[block as usize].slot = slot;
        self.group[block as usize] = fit::<u8>(group);
        self.counts.inserted += 1;
        self.by_group[group].0 += 1;
        self.held_keyed += 1;
        let key = self.indexes[group].key(slot);
        if let Some(word) = self.had[group].get_mut((key / 64) as usize) {
            *word |= 1 << (key % 64);
        }
        let first = self.indexes[group].first(slot);
        if first == NONE {
            self.before[block as usize] = block;
            return self.indexes[group].fill(slot, block);
        }
        let last = std::mem::replace(&mut self.before[first as usize], block);
        self.before[block as usize] = last;
        self.duplicate[last as usize] = block;
    }

    fn evict(&mut self, block: u32) {
        let group = usize::from(self.group[block as usize]);
        self.by_group[group].1 += 1;
        let index = &mut self.indexes[group];
        let slot = std::mem::replace(&mut self.nodes[block as usize].slot, NONE);
        let heir = std::mem::replace(&mut self.duplicate[block as usize], NONE);
        self.counts.evicted += 1;
        let (first, before) = (index.first(slot), self.before[block as usize]);
        let after = if heir == NONE { first } else { heir };
        if first != block {
            self.duplicate[before as usize] = heir;
            self.before[after as usize] = before;
        } else if heir != NONE {
            self.before[heir as usize] = before;
            index.replace(slot, heir);
        } else {
            index.clear(slot);
        }
    }

    /// Returns the counts of operations so far.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// Returns, for each group, the number of blocks that got a key and that lost it.
    pub fn by_group(&self) -> &[(u64, u64)] {
        &self.by_group
    }

    /// Returns group and key of the free blocks in the order in which they are taken; `None` without a key.
    pub fn free_queue(&self) -> impl Iterator<Item = Option<(u8, u64)>> + '_ {
        self.free_after(NULL)
            .map(|block| self.key_of(block))
            .map(|key| key.map(|key| (fit::<u8>(key.group), key.key)))
    }

    /// Returns the free blocks behind one of them in the order in which they are taken; all behind `NULL`.
    pub fn free_after(&self, block: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |block: u32| Some(self.nodes[block as usize].next).filter(|&next| next != NULL);
        std::iter::successors(next(block), move |&block| next(block))
    }

    /// Returns the key of a block, if it has one.
    pub fn key_of(&self, block: u32) -> Option<GroupKey> {
        let (slot, group) = (
            self.nodes[block as usize].slot,
            usize::from(self.group[block as usize]),
        );
        (slot != NONE).then(|| GroupKey {
            group,
            key: self.indexes[group].key(slot),
        })
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let indexes: usize = self.indexes.iter().map(KeyIndex::heap_bytes).sum();
        let had: usize = self.had.iter().map(|words| 8 * words.len()).sum();
        25 * self.nodes.len() + indexes + had
    }
}

/// A bit for each key of the trace's ids, none of them set.
fn bits(group: &Group) -> Vec<u64> {
    let keys = u64::from(group.keys.distinct_ids()) * u64::from(group.keys.blocks_per_id());
    match group.kind {
        Kind::Full => Vec::new(),
        _ => vec![0; fit::<usize>(keys.div_ceil(64))],
    }
}

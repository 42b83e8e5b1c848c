//! Blocks with a key: runs of blocks in neighboring slots of a chunk, all with the same holders, and the queue
//! of free runs.
//!
//! The blocks of a run were allocated together, so their holder also queues them together, last to first: a run is
//! one entry of the queue, its last block in front. A run is cut when a request holds only a part of it. A block
//! whose key has another block is a run of its own.

use super::super::key_index::KeyIndex;
use super::holds::Holds;
use crate::convert::fit;
use crate::ids::NONE;

/// Sentinel run at both ends of the queue; no slot names it.
pub(super) const ENDS: u32 = 0;

/// Blocks in neighboring slots with the same holders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub slot: u32,
    pub blocks: u32,
    pub ref_count: u32,
    /// Number that distinguishes the blocks of one key; later blocks have greater numbers.
    pub copy: u32,
    /// Next block of the same key.
    pub duplicate: u32,
    /// Links of the queue, if the run has no holder.
    pub previous: u32,
    pub next: u32,
}

impl Run {
    /// Returns the slot behind the run's last slot.
    fn end(&self) -> u32 {
        self.slot + self.blocks
    }
}

/// Runs, and the index of keys.
#[derive(Debug)]
pub(super) struct Runs {
    /// For each slot the run of the first block inserted.
    pub index: KeyIndex,
    pub list: Vec<Run>,
    /// Unused entries of the list of runs.
    pub spare: Vec<u32>,
}

impl Runs {
    /// No blocks.
    pub fn new(index: KeyIndex) -> Self {
        let ends = Run {
            slot: NONE,
            blocks: 0,
            ref_count: 0,
            copy: 0,
            duplicate: NONE,
            previous: ENDS,
            next: ENDS,
        };
        Self {
            index,
            list: vec![ends],
            spare: Vec::new(),
        }
    }

    fn run(&self, run: u32) -> &Run {
        &self.list[run as usize]
    }

    fn run_mut(&mut self, run: u32) -> &mut Run {
        &mut self.list[run as usize]
    }

    /// Returns the number of slots from `slot` on, at most `slots`, that have a block.
    pub fn resident(&self, slot: u32, slots: u32) -> u32 {
        let mut at = slot;
        while at < slot + slots {
            let run = self.index.first(at);
            if run == NONE {
                return at - slot;
            }
            at = self.run(run).end();
        }
        slots
    }

    /// Returns the number of leading slots from `slot` on, of `slots` resident ones, whose first block is free.
    pub fn idle(&self, slot: u32, slots: u32) -> u32 {
        let (mut at, mut idle) = (slot, 0);
        while at < slot + slots {
            let run = self.run(self.index.first(at));
            let end = run.end().min(slot + slots);
            idle += if run.ref_count == 0 { end - at } else { 0 };
            at = end;
        }
        idle
    }

    /// Holds the first blocks of the slots up to `end`, all resident. Returns the number that were free.
    pub fn hold(&mut self, slot: u32, end: u32, held: &mut Holds) -> u32 {
        let (mut at, mut idle) = (slot, 0);
        while at < end {
            let mut id = self.index.first(at);
            if self.run(id).slot < at {
                id = self.cut(id, at);
            }
            if self.run(id).end() > end {
                self.cut(id, end);
            }
            if self.run(id).ref_count == 0 {
                self.unlink(id);
                idle += self.run(id).blocks;
            }
            let run = self.run_mut(id);
            run.ref_count += 1;
            held.push(run.slot, run.blocks, run.copy);
            at = run.end();
        }
        held.blocks += end - slot;
        idle
    }

    /// Gives keys to blocks that only the request of `held` holds, in slots up to `end` of a chunk.
    pub fn insert(&mut self, slot: u32, end: u32, held: &mut Holds) {
        let mut at = slot;
        while at < end {
            if self.index.first(at) != NONE {
                let copy = self.insert_duplicate(at);
                held.push(at, 1, copy);
                at += 1;
                continue;
            }
            let empty = (at..end).take_while(|&s| self.index.first(s) == NONE);
            let blocks = fit::<u32>(empty.count());
            if let Some(run) = self.growing(at, held) {
                self.run_mut(run).blocks += blocks;
                self.index.fill_run(at, blocks, run);
                held.push(at, blocks, self.run(run).copy);
            } else {
                let run = self.add(at, blocks, 0);
                self.index.fill_run(at, blocks, run);
                held.push(at, blocks, 0);
            }
            at += blocks;
        }
    }

    /// Returns the run before an empty slot, if only the request of `held` has it, as its last run.
    fn growing(&self, slot: u32, held: &Holds) -> Option<u32> {
        if !self.index.joins(slot) {
            return None;
        }
        let run = self.at(slot - 1, held.copy_before(slot)?);
        (self.run(run).ref_count == 1 && !self.is_duplicated(run)).then_some(run)
    }

    /// Adds a block to a key that has one. Returns its copy.
    fn insert_duplicate(&mut self, slot: u32) -> u32 {
        let mut last = self.index.first(slot);
        if self.run(last).slot < slot {
            last = self.cut(last, slot);
        }
        if self.run(last).blocks > 1 {
            self.cut(last, slot + 1);
        }
        while self.run(last).duplicate != NONE {
            last = self.run(last).duplicate;
        }
        let copy = self.run(last).copy + 1;
        self.run_mut(last).duplicate = self.add(slot, 1, copy);
        copy
    }

    /// Releases held blocks, last to first. Returns the number that are free now.
    pub fn release(&mut self, held: &Holds) -> u32 {
        let mut idle = 0;
        for hold in held.keyed_at.iter().rev() {
            let mut end = hold.slot + hold.blocks;
            while end > hold.slot {
                let id = self.at(end - 1, hold.copy);
                let run = self.run_mut(id);
                run.ref_count -= 1;
                end = run.slot;
                if run.ref_count == 0 {
                    idle += run.blocks;
                    self.queue(id);
                }
            }
        }
        idle
    }

    /// Returns the run of a slot's block, by its copy.
    pub fn at(&self, slot: u32, copy: u32) -> u32 {
        let mut run = self.index.first(slot);
        while self.run(run).copy != copy {
            run = self.run(run).duplicate;
        }
        run
    }

    /// Returns true if the run is one of several blocks of a key.
    pub fn is_duplicated(&self, run: u32) -> bool {
        let Run {
            slot, duplicate, ..
        } = *self.run(run);
        duplicate != NONE || self.index.first(slot) != run
    }

    /// Returns the run whose last block is taken next.
    pub fn front(&self) -> u32 {
        self.run(ENDS).next
    }

    /// Returns the first slot and the number of a run's last blocks, at most `most`.
    pub fn end(&self, run: u32, most: u32) -> (u32, u32) {
        let run = self.run(run);
        let blocks = most.min(run.blocks);
        (run.end() - blocks, blocks)
    }

    /// Takes a free run's last blocks out of the queue, and removes their keys.
    pub fn evict(&mut self, id: u32, blocks: u32) {
        let run = *self.run(id);
        if run.blocks == 1 && self.is_duplicated(id) {
            self.leave_duplicates(id);
        } else {
            self.index.clear_run(run.end() - blocks, blocks);
        }
        if blocks < run.blocks {
            self.run_mut(id).blocks -= blocks;
        } else {
            self.unlink(id);
            self.spare.push(id);
        }
    }

    /// Removes a block from the list of its key's blocks.
    fn leave_duplicates(&mut self, id: u32) {
        let Run {
            slot, duplicate, ..
        } = *self.run(id);
        let mut before = self.index.first(slot);
        if before == id {
            self.index.replace(slot, duplicate);
            return;
        }
        while self.run(before).duplicate != id {
            before = self.run(before).duplicate;
        }
        self.run_mut(before).duplicate = duplicate;
    }

    /// Adds a run with one holder.
    fn add(&mut self, slot: u32, blocks: u32, copy: u32) -> u32 {
        self.keep(Run {
            slot,
            blocks,
            ref_count: 1,
            copy,
            duplicate: NONE,
            previous: NONE,
            next: NONE,
        })
    }

    fn keep(&mut self, run: Run) -> u32 {
        if let Some(id) = self.spare.pop() {
            self.list[id as usize] = run;
            return id;
        }
        self.list.push(run);
        fit::<u32>(self.list.len() - 1)
    }

    /// Cuts a run before a slot. Returns the part from the slot on, which is first in the queue.
    fn cut(&mut self, id: u32, slot: u32) -> u32 {
        let mut upper = *self.run(id);
        upper.blocks = upper.end() - slot;
        upper.slot = slot;
        let (blocks, is_free) = (upper.blocks, upper.ref_count == 0);
        let new = self.keep(upper);
        self.run_mut(id).blocks -= blocks;
        self.index.name_run(slot, blocks, new);
        if is_free {
            self.link(self.run(id).previous, new);
        }
        new
    }

    /// Appends a run to the queue; a run that follows the neighbor there is merged into it.
    fn queue(&mut self, id: u32) {
        let last = self.run(ENDS).previous;
        let (run, before) = (*self.run(id), *self.run(last));
        let follows = run.end() == before.slot
            && self.index.joins(before.slot)
            && run.copy == before.copy
            && !self.is_duplicated(id)
            && !self.is_duplicated(last);
        if !follows {
            self.link(last, id);
            return;
        }
        let joined = self.run_mut(last);
        (joined.slot, joined.blocks) = (run.slot, joined.blocks + run.blocks);
        self.index.name_run(run.slot, run.blocks, last);
        self.spare.push(id);
    }

    /// Inserts a run behind another run in the queue.
    fn link(&mut self, before: u32, id: u32) {
        let after = self.run(before).next;
        let run = self.run_mut(id);
        (run.previous, run.next) = (before, after);
        self.run_mut(before).next = id;
        self.run_mut(after).previous = id;
    }

    fn unlink(&mut self, id: u32) {
        let Run { previous, next, .. } = *self.run(id);
        self.run_mut(previous).next = next;
        self.run_mut(next).previous = previous;
    }

    /// Returns the keys of the queue's blocks in the order in which they are taken.
    pub fn queued(&self) -> impl Iterator<Item = u64> + '_ {
        let next = |&id: &u32| Some(self.run(id).next);
        let runs = std::iter::successors(Some(self.front()), next).take_while(|&id| id != ENDS);
        let slots = runs.flat_map(|id| (self.run(id).slot..self.run(id).end()).rev());
        slots.map(|slot| self.index.key(slot))
    }

    pub fn heap_bytes(&self) -> usize {
        size_of::<Run>() * self.list.capacity()
            + size_of::<u32>() * self.spare.capacity()
            + self.index.heap_bytes()
    }
}

//! The blocks with a key: runs of them in neighbouring slots of a chunk, all with the same holders, and the queue
//! of those that nobody holds.
//!
//! The blocks of a run were got together, so whoever lets go of them queues them last to first: a run stands in
//! the queue as one, its last block in front. It is cut where a request holds a part of it only. A block whose
//! key has another one is a run of its own.

use super::super::key_index::KeyIndex;
use super::holds::Holds;
use crate::ids::NONE;

/// The queue's two ends are one run, which no slot names.
pub(super) const ENDS: u32 = 0;

/// Blocks in neighbouring slots with the same holders.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub slot: u32,
    pub blocks: u32,
    pub ref_count: u32,
    /// Tells the blocks of one key apart: later ones have greater numbers.
    pub copy: u32,
    /// The next block of the same key.
    pub duplicate: u32,
    /// Links of the queue, where it has no holder.
    pub previous: u32,
    pub next: u32,
}

impl Run {
    /// The slot behind its last one.
    fn end(&self) -> u32 {
        self.slot + self.blocks
    }
}

/// Runs, and where keys lead.
#[derive(Debug)]
pub(super) struct Runs {
    /// For each slot the run of the first block inserted.
    pub index: KeyIndex,
    pub list: Vec<Run>,
    /// Entries of the list that are none now.
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

    /// How many slots from one on, of `slots`, have a block.
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

    /// How many slots from one on, of `slots` with a block, have one first that nobody holds.
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

    /// Holds the first blocks of slots up to `end`, all resident; how many of them nobody held.
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

    /// Gives blocks without a key, which only the request of `held` holds, those of slots up to `end` of a chunk.
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
            let blocks = empty.count() as u32;
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

    /// The run before an empty slot, where only the request of `held` has it, as its last one.
    fn growing(&self, slot: u32, held: &Holds) -> Option<u32> {
        if !self.index.joins(slot) {
            return None;
        }
        let run = self.at(slot - 1, held.copy_before(slot)?);
        (self.run(run).ref_count == 1 && !self.is_duplicated(run)).then_some(run)
    }

    /// Adds a block of a key that has one; returns its copy.
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

    /// Ends one holding of blocks, last to first; how many nobody holds now.
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

    /// The run of a slot's block, by its copy.
    pub fn at(&self, slot: u32, copy: u32) -> u32 {
        let mut run = self.index.first(slot);
        while self.run(run).copy != copy {
            run = self.run(run).duplicate;
        }
        run
    }

    /// Whether the run is one of several blocks of a key.
    pub fn is_duplicated(&self, run: u32) -> bool {
        let Run {
            slot, duplicate, ..
        } = *self.run(run);
        duplicate != NONE || self.index.first(slot) != run
    }

    /// The run whose last block is taken next.
    pub fn front(&self) -> u32 {
        self.run(ENDS).next
    }

    /// The last blocks of a run, at most `most`: their first slot and how many.
    pub fn end(&self, run: u32, most: u32) -> (u32, u32) {
        let run = self.run(run);
        let blocks = most.min(run.blocks);
        (run.end() - blocks, blocks)
    }

    /// Takes a free run's last blocks out of the queue, and their keys.
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

    /// Takes a block out of those of its key.
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
        (self.list.len() - 1) as u32
    }

    /// Cuts a run before a slot; returns the part from it on, which comes first in the queue.
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

    /// Puts a run at the end of the queue; one that follows its neighbour there becomes a part of that.
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

    /// Puts a run behind another in the queue.
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

    /// The keys of the queue's blocks, next to be taken first.
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

//! The hits of least recently used at every capacity, row by row, in memory by distinct blocks.

use super::newer::{Newer, LEAST};
use super::prompt_error::PromptError;
use super::steps::HitSteps;
use crate::ids::NONE;

/// Blocks that a row touches, and those of them that may hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowBlocks {
    /// Blocks that ids name.
    pub named: u64,
    /// Blocks of this row alone, behind the named ones.
    pub private: u64,
    /// Leading blocks that may count as hits.
    pub limit: u64,
}

impl RowBlocks {
    /// Fails if 32 bits do not count the blocks.
    pub fn check(&self) -> Result<(), PromptError> {
        match u32::try_from(self.named + self.private) {
            Ok(_) => Ok(()),
            Err(_) => Err(PromptError::TooManyBlocks),
        }
    }
}

/// A rule that cuts prompts into blocks.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Tokens a block.
    pub block_size: u64,
    /// True if a partial last id is a block.
    pub keep_partial: bool,
    /// Output tokens whose KV a request does not leave; None: it leaves none of its output.
    pub output_less: Option<u64>,
}

impl Cut {
    /// The blocks of a row by its tokens and the number of its ids, each `per_id` blocks.
    pub fn row(&self, input: u64, output: u64, ids: u64, per_id: u64) -> RowBlocks {
        let whole = if ids == 0 {
            input / (self.block_size * per_id)
        } else {
            0
        };
        let ids = ids * per_id;
        if self.keep_partial {
            return RowBlocks {
                named: ids,
                private: whole * per_id,
                limit: ids,
            };
        }
        let filled = self
            .output_less
            .map_or(0, |less| output.saturating_sub(less));
        let named = (input / self.block_size).min(ids);
        RowBlocks {
            named,
            private: (input + filled) / self.block_size - named,
            limit: named.min(input.saturating_sub(1) / self.block_size),
        }
    }
}

/// The recency stack of all blocks, and the capacities at which references hit.
///
/// All blocks of a row are touched together, deepest first. Blocks that were touched together lie next to each other
/// in the stack, so a row costs a few operations for each earlier touch that it meets. Memory: 4 bytes a block, 16 a
/// touch that still has blocks, and the steps.
pub struct RecencyStack {
    /// The last touch of each block, by its number.
    touched: Vec<u32>,
    /// Blocks that each block stands for; empty if itself alone.
    weights: Vec<u32>,
    newer: Newer,
    clock: u32,
    /// Tokens a hit of a whole block counts.
    block_size: u64,
    /// Hits in blocks.
    pub hits: HitSteps,
    /// Tokens that hits count less than whole blocks.
    pub short: HitSteps,
    /// References so far, private blocks included.
    pub references: u64,
    /// Of `references`, those to a block seen before.
    pub reused: u64,
}

/// A sampled block, and the number of blocks that it stands for where it is new.
#[derive(Clone, Copy, Debug)]
pub struct SampledBlock {
    /// The block.
    pub id: u32,
    /// The blocks it stands for.
    pub weight: u32,
}

impl RecencyStack {
    /// An empty stack of blocks of `block_size` tokens.
    pub fn new(block_size: u64) -> Self {
        Self {
            touched: Vec::new(),
            weights: Vec::new(),
            newer: Newer::new(LEAST),
            clock: 0,
            block_size,
            hits: HitSteps::default(),
            short: HitSteps::default(),
            references: 0,
            reused: 0,
        }
    }

    /// References a row of blocks with ids of a prefix tree; `input` are its tokens.
    pub fn row(&mut self, ids: &[u32], blocks: RowBlocks, input: u64) {
        let ids = &ids[..blocks.named as usize];
        let mut at = 0;
        while let Some((touch, met)) = self.met(ids[at..].iter().copied()) {
            let above = self.newer.after(touch);
            self.hit(at as u64, met as u64, above + 1, blocks.limit, input);
            self.newer.remove(touch, met as u64);
            self.newer.add(self.clock, met as u64);
            at += met;
        }
        self.reused += at as u64;
        self.newer
            .add(self.clock, (ids.len() - at) as u64 + blocks.private);
        self.touch(ids.iter().copied());
        self.references += blocks.named + blocks.private;
    }

    /// References the sampled blocks of a row. The first `countable` may hit; `unit` blocks are one capacity of the
    /// steps; `private` blocks are of this row alone.
    pub fn sampled_row(&mut self, ids: &[SampledBlock], countable: usize, unit: u64, private: u64) {
        if ids.is_empty() && private == 0 {
            return;
        }
        let number = |block: &SampledBlock| block.id;
        let mut at = 0;
        while let Some((touch, met)) = self.met(ids[at..].iter().map(number)) {
            let weight = |from: usize, to: usize| -> u64 {
                let weights = ids[from..to]
                    .iter()
                    .map(|block| self.weights[block.id as usize]);
                weights.map(u64::from).sum()
            };
            let all = weight(at, at + met);
            let counted = weight(at, (at + met).min(countable).max(at));
            let from = self.newer.after(touch) / unit + 1;
            self.hits.add(from, counted / unit, unit as i64);
            self.hits
                .add(from + counted / unit, 1, (counted % unit) as i64);
            self.newer.remove(touch, all);
            self.newer.add(self.clock, all);
            at += met;
        }
        // behind a new block all are new, unless the ids form no tree: then the others stay as they are
        let touched = &self.touched;
        let is_new =
            |block: &&SampledBlock| touched.get(block.id as usize).is_none_or(|&t| t == NONE);
        let fresh = ids[at..].iter().take_while(is_new).count();
        for &SampledBlock { id, weight } in &ids[at..at + fresh] {
            if id as usize >= self.weights.len() {
                self.weights.resize(id as usize + 1, 0);
            }
            self.weights[id as usize] = weight;
        }
        let new = ids[at..at + fresh].iter();
        let new: u64 = new.map(|block| u64::from(block.weight)).sum();
        self.newer.add(self.clock, new + private);
        self.touch(ids[..at + fresh].iter().map(number));
    }

    /// The last touch of the first block, and the number of leading blocks that it reached; None if it is new.
    fn met(&self, mut ids: impl Iterator<Item = u32>) -> Option<(u32, usize)> {
        let touch_of = |id: u32| self.touched.get(id as usize).copied();
        let touch = ids.next().and_then(touch_of).filter(|&t| t != NONE)?;
        let same = ids.take_while(|&id| touch_of(id) == Some(touch));
        Some((touch, 1 + same.count()))
    }

    /// Counts `met` blocks from position `at` on, the first of which hits at `capacity`.
    fn hit(&mut self, at: u64, met: u64, capacity: u64, limit: u64, input: u64) {
        let count = met.min(limit.saturating_sub(at));
        self.hits.add(capacity, count, 1);
        let size = self.block_size;
        let first = at.max(input / size);
        if at + count > first {
            let capacity = capacity + first - at;
            self.short.add(capacity, at + count - first, size as i64);
            let tokens = if first == input / size {
                input % size
            } else {
                0
            };
            self.short.add(capacity, 1, -(tokens as i64));
        }
    }

    fn touch(&mut self, ids: impl Iterator<Item = u32>) {
        for id in ids {
            let id = id as usize;
            if id >= self.touched.len() {
                self.touched.resize(id + 1, NONE);
            }
            self.touched[id] = self.clock;
        }
        self.clock += 1;
        if self.clock as usize == self.newer.touches() {
            let (numbers, next) = self.newer.renumber();
            for touch in self.touched.iter_mut().filter(|t| **t != NONE) {
                *touch = numbers[*touch as usize];
            }
            self.clock = next;
        }
    }
}

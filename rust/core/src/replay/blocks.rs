//! The trace block by block: numbers of blocks, their parents, and residency.

use super::holds::Holds;
use super::runs::{PromptError, Prompts};
use crate::ids::NONE;

/// Blocks of a trace numbered: block k of id d is `d × blocks_per_id + k`; private ones follow.
#[derive(Debug)]
pub struct Blocks<'a> {
    prompts: Prompts<'a>,
    shared: u32,
    /// First private block of each request, and the end after the last.
    private_from: Vec<u32>,
    /// The id above each id at its first appearance.
    parent: Vec<u32>,
    /// Resident children (ids or private runs) below each id.
    live_children: Vec<u32>,
    resident: Vec<u64>,
    /// The current request: the ids it takes, the last of them in part.
    held_by: Vec<u32>,
    request: u32,
    /// Blocks held by requests in flight, if requests overlap.
    holds: Option<Holds>,
}

impl<'a> Blocks<'a> {
    /// Number the blocks; `window` requests overlap (0: none). Fails if the numbers do not fit 32 bits.
    pub fn of(prompts: Prompts<'a>, window: u32) -> Result<Self, PromptError> {
        let too_many = || PromptError::TooManyBlocks;
        let distinct = prompts.distinct_ids();
        let shared = u32::try_from(distinct as u64 * u64::from(prompts.blocks_per_id))
            .map_err(|_| too_many())?;
        let mut private_from = Vec::with_capacity(prompts.len() + 1);
        let mut end = shared;
        for &blocks in prompts.private_blocks {
            private_from.push(end);
            end = end.checked_add(blocks).ok_or_else(too_many)?;
        }
        private_from.push(end);
        let mut parent = vec![NONE; distinct];
        let mut seen = vec![false; distinct];
        for i in 0..prompts.len() {
            let mut before = NONE;
            for &id in prompts.row(i) {
                if !std::mem::replace(&mut seen[id as usize], true) {
                    parent[id as usize] = before;
                }
                before = id;
            }
        }
        Ok(Self {
            prompts,
            shared,
            private_from,
            parent,
            live_children: vec![0; distinct],
            resident: vec![0; (end as usize).div_ceil(64)],
            held_by: vec![NONE; distinct],
            request: NONE,
            holds: (window > 0).then(|| Holds::new(window, end as usize)),
        })
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.prompts.len()
    }

    /// Number of ids, and blocks per id.
    pub fn ids(&self) -> (usize, u32) {
        (self.parent.len(), self.prompts.blocks_per_id)
    }

    /// Number of distinct blocks.
    pub fn universe(&self) -> usize {
        *self.private_from.last().unwrap_or(&0) as usize
    }

    /// Write the blocks of request i, root first, and hold them.
    pub fn take(&mut self, i: usize, row: &mut Vec<u32>) {
        row.clear();
        self.request = i as u32;
        let per = self.prompts.blocks_per_id;
        for (j, &id) in self.prompts.row(i).iter().enumerate() {
            self.held_by[id as usize] = i as u32;
            row.extend(id * per..id * per + self.prompts.taken(i, j));
        }
        row.extend(self.private_from[i]..self.private_from[i + 1]);
        if let Some(mut holds) = self.holds.take() {
            for &block in row.iter() {
                holds.hold(block, u32::from(self.is_resident(block)));
            }
            holds.start(i as u32);
            self.holds = Some(holds);
        }
    }

    /// End the oldest request in flight if the window is full.
    pub fn end_oldest(&mut self) {
        let Some(mut holds) = self.holds.take() else {
            return;
        };
        if let Some(oldest) = holds.before_start() {
            let i = oldest as usize;
            let per = self.prompts.blocks_per_id;
            for (j, &id) in self.prompts.row(i).iter().enumerate() {
                for block in id * per..id * per + self.prompts.taken(i, j) {
                    holds.release(block, u32::from(self.is_resident(block)));
                }
            }
            for block in self.private_from[i]..self.private_from[i + 1] {
                holds.release(block, u32::from(self.is_resident(block)));
            }
        }
        self.holds = Some(holds);
    }

    /// Return true if a request in flight, of several that overlap, holds a block.
    pub fn is_in_flight(&self, block: u32) -> bool {
        self.holds.as_ref().is_some_and(|h| h.is_held(block))
    }

    /// Resident blocks held by requests in flight; None if requests do not overlap.
    pub fn held_resident(&self) -> Option<u64> {
        self.holds.as_ref().map(Holds::resident)
    }

    /// Return true if a block is in the tier.
    pub fn is_resident(&self, block: u32) -> bool {
        self.resident[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// Return true if the current request, or another in flight, needs a block.
    pub fn is_held(&self, block: u32) -> bool {
        if let Some(holds) = &self.holds {
            return holds.is_held(block);
        }
        let i = self.request as usize;
        if block >= self.shared {
            return (self.private_from[i]..self.private_from[i + 1]).contains(&block);
        }
        let per = self.prompts.blocks_per_id;
        let (id, k) = (block / per, block % per);
        if self.held_by[id as usize] != self.request {
            return false;
        }
        let row = self.prompts.row(i);
        row.last() != Some(&id) || k < self.prompts.taken(i, row.len() - 1)
    }

    /// Return true if a block has no resident child.
    pub fn is_leaf(&self, block: u32) -> bool {
        if block >= self.shared {
            let run = self.private_from.partition_point(|&from| from <= block);
            return block + 1 == self.private_from[run] || !self.is_resident(block + 1);
        }
        let per = self.prompts.blocks_per_id;
        if block % per + 1 < per && self.is_resident(block + 1) {
            return false;
        }
        self.live_children[(block / per) as usize] == 0
    }

    /// Put a block into the tier; it was not resident.
    pub fn arrive(&mut self, block: u32) {
        self.resident[block as usize / 64] |= 1 << (block % 64);
        if let Some(holds) = &mut self.holds {
            holds.arrived(block, 1);
        }
        if let Some(parent) = self.id_above(block) {
            self.live_children[parent as usize] += 1;
        }
    }

    /// Remove a resident block from the tier.
    pub fn leave(&mut self, block: u32) {
        self.resident[block as usize / 64] &= !(1 << (block % 64));
        if let Some(parent) = self.id_above(block) {
            self.live_children[parent as usize] -= 1;
        }
    }

    /// The id above the first block of an id or of a private run.
    fn id_above(&self, block: u32) -> Option<u32> {
        if block >= self.shared {
            let request = self.private_from.partition_point(|&from| from <= block) - 1;
            let first = self.private_from[request] == block;
            return first
                .then(|| self.prompts.row(request).last().copied())
                .flatten();
        }
        let per = self.prompts.blocks_per_id;
        let first = block % per == 0;
        let parent = self.parent[(block / per) as usize];
        (first && parent != NONE).then_some(parent)
    }
}

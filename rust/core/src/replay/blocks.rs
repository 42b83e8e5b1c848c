//! Single blocks, numbered as rows come: their parents, residency, and the requests that hold them.

use std::collections::VecDeque;

use super::holds::Holds;
use super::prompt_error::PromptError;
use super::runs::Prompts;
use super::stack::RowBlocks;
use crate::ids::NONE;

/// Links of a block.
#[derive(Debug, Clone, Copy)]
struct Link {
    /// The block before it at its first appearance.
    above: u32,
    /// Resident blocks behind it.
    live_children: u32,
}

const UNSEEN: Link = Link {
    above: NONE,
    live_children: 0,
};

/// Blocks of rows: block k of id d is `d × blocks_per_id + k`; blocks of one row alone have numbers between.
///
/// 12 bytes and a bit a block, in a cache without prefixes 4 or none and a bit; 4 more an id where rows have blocks of
/// their own.
#[derive(Debug)]
pub struct Blocks {
    per_id: u32,
    /// The first block of each id, once a block of one row alone may have a number below an id's.
    first: Option<Vec<u32>>,
    /// Ids seen so far; None if all blocks of one row alone come behind those of ids.
    ids: Option<u32>,
    /// The number of the next block.
    next: u32,
    /// Empty in a cache without prefixes.
    links: Vec<Link>,
    /// The last request that took a block; empty if requests in flight alone hold blocks.
    requests: Vec<u32>,
    has_links: bool,
    has_requests: bool,
    resident: Vec<u64>,
    /// Number of the current request.
    request: u32,
    /// Blocks held by requests in flight and their rows, the oldest first, if requests overlap.
    holds: Option<Holds>,
    in_flight: VecDeque<Vec<u32>>,
}

impl Blocks {
    /// No blocks yet; ids come in order of first appearance, each `per_id` blocks, and `window` requests overlap (0:
    /// none).
    pub fn new(per_id: u32, window: u32) -> Self {
        Self {
            per_id,
            first: None,
            ids: Some(0),
            next: 0,
            links: Vec::new(),
            requests: Vec::new(),
            has_links: true,
            has_requests: true,
            resident: Vec::new(),
            request: 0,
            holds: (window > 0).then(|| Holds::new(window, 0)),
            in_flight: VecDeque::new(),
        }
    }

    /// The same for a trace whose ids are known, with the number of its distinct blocks. Fails if the numbers do not
    /// fit 32 bits.
    pub fn of(prompts: &Prompts, window: u32) -> Result<(Self, usize), PromptError> {
        let shared = prompts.distinct_ids() as u64 * u64::from(prompts.blocks_per_id);
        let private = prompts
            .private_blocks
            .iter()
            .map(|&blocks| u64::from(blocks));
        let all = u32::try_from(shared + private.sum::<u64>());
        let all = all.map_err(|_| PromptError::TooManyBlocks)?;
        let mut blocks = Self::new(prompts.blocks_per_id, window);
        (blocks.ids, blocks.next) = (None, shared as u32);
        Ok((blocks, all as usize))
    }

    /// Keep no parents of blocks; unless `holds_current`, the current request holds none either.
    pub fn without_links(mut self, holds_current: bool) -> Self {
        (self.has_links, self.has_requests) = (false, holds_current);
        self
    }

    /// Write the blocks of a row, root first; `ids` are those that its blocks reach into.
    pub fn number(
        &mut self,
        ids: &[u32],
        blocks: RowBlocks,
        row: &mut Vec<u32>,
    ) -> Result<(), PromptError> {
        row.clear();
        let mut left = blocks.named as u32;
        let ids = &ids[..blocks.named.div_ceil(u64::from(self.per_id)) as usize];
        self.know(ids)?;
        match (self.per_id, &self.first) {
            (1, None) => row.extend(ids),
            (1, Some(first)) => row.extend(ids.iter().map(|&id| first[id as usize])),
            (per_id, firsts) => {
                for &id in ids {
                    let first = firsts.as_ref().map_or(id * per_id, |f| f[id as usize]);
                    let taken = left.min(per_id);
                    left -= taken;
                    row.extend(first..first + taken);
                }
            }
        }
        if blocks.private > 0 {
            if let (Some(ids), None) = (self.ids, &self.first) {
                self.first = Some((0..ids).map(|id| id * self.per_id).collect());
            }
            let from = self.take_numbers(blocks.private as u32)?;
            row.extend(from..self.next);
        }
        Ok(())
    }

    fn take_numbers(&mut self, blocks: u32) -> Result<u32, PromptError> {
        let end = self.next.checked_add(blocks).filter(|&end| end != NONE);
        Ok(std::mem::replace(
            &mut self.next,
            end.ok_or(PromptError::TooManyBlocks)?,
        ))
    }

    /// Number the blocks of ids that are new.
    fn know(&mut self, ids: &[u32]) -> Result<(), PromptError> {
        let Some(known) = self.ids else {
            return Ok(());
        };
        let end = end_of(ids);
        for _ in known..end {
            let from = self.take_numbers(self.per_id)?;
            if let Some(first) = &mut self.first {
                first.push(from);
            }
        }
        self.ids = Some(known.max(end));
        Ok(())
    }

    /// Start a request with these blocks, root first, and hold them.
    pub fn take(&mut self, row: &[u32]) {
        self.request += 1;
        let end = end_of(row) as usize;
        if self.resident.len() * 64 < end {
            self.resident.resize(end.div_ceil(64), 0);
        }
        if self.has_links && self.links.len() < end {
            self.links.resize(end, UNSEEN);
        }
        if self.has_requests && self.requests.len() < end {
            self.requests.resize(end, NONE);
        }
        let mut before = NONE;
        for &block in row.iter().filter(|_| self.has_requests) {
            let known = std::mem::replace(&mut self.requests[block as usize], self.request);
            if known == NONE && self.has_links {
                self.links[block as usize].above = before;
            }
            before = block;
        }
        if let Some(mut holds) = self.holds.take() {
            for &block in row {
                holds.hold(block, u32::from(self.is_resident(block)));
            }
            holds.start(self.request);
            self.in_flight.push_back(row.to_vec());
            self.holds = Some(holds);
        }
    }

    /// End the oldest request in flight if the window is full.
    pub fn end_oldest(&mut self) {
        let Some(mut holds) = self.holds.take() else {
            return;
        };
        if holds.before_start().is_some() {
            for block in self.in_flight.pop_front().unwrap_or_default() {
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
    #[inline]
    pub fn is_resident(&self, block: u32) -> bool {
        self.resident[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// Return true if the current request, or another in flight, needs a block.
    pub fn is_held(&self, block: u32) -> bool {
        match &self.holds {
            Some(holds) => holds.is_held(block),
            None => self.requests[block as usize] == self.request,
        }
    }

    /// Return true if a block has no resident child.
    pub fn is_leaf(&self, block: u32) -> bool {
        self.links[block as usize].live_children == 0
    }

    /// Put a block into the tier; it was not resident.
    pub fn arrive(&mut self, block: u32) {
        self.resident[block as usize / 64] |= 1 << (block % 64);
        if let Some(holds) = &mut self.holds {
            holds.arrived(block, 1);
        }
        if let Some(above) = self.above(block) {
            above.live_children += 1;
        }
    }

    /// Remove a resident block from the tier; returns the block before it if that is a leaf now.
    pub fn leave(&mut self, block: u32) -> Option<u32> {
        self.resident[block as usize / 64] &= !(1 << (block % 64));
        let number = self.links.get(block as usize)?.above;
        let above = self.above(block)?;
        above.live_children -= 1;
        (above.live_children == 0).then_some(number)
    }

    fn above(&mut self, block: u32) -> Option<&mut Link> {
        match self.links.get(block as usize)?.above {
            NONE => None,
            above => self.links.get_mut(above as usize),
        }
    }
}

/// The number after the highest one; a fold of copies compares many at once, unlike `max`.
pub fn end_of(numbers: &[u32]) -> u32 {
    numbers.iter().copied().fold(0, |end, n| end.max(n + 1))
}

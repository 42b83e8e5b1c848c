//! Ids of smaller blocks: each id becomes a run of new ones, numbered in order of first appearance.

use std::collections::HashMap;

use crate::ids::NONE;

/// The new ids of each old one.
pub struct BlockSplit {
    /// Tokens of an old and of a new block.
    sizes: (u64, u64),
    /// First new id of each old one, and how many follow each other.
    runs: Vec<(u32, u32)>,
    /// Further runs of ids that stood for fewer tokens where they appeared first.
    more: HashMap<u32, Vec<(u32, u32)>>,
    next: u32,
}

impl BlockSplit {
    /// Splits blocks of `old` tokens into such of `new`, a divisor of it.
    pub fn new(old: u64, new: u64) -> Self {
        Self {
            sizes: (old, new),
            runs: Vec::new(),
            more: HashMap::new(),
            next: 0,
        }
    }

    /// Appends the new ids of a row of `input` tokens; None if there are more than 2³²−1.
    pub fn row(&mut self, ids: &[u32], input: u64, out: &mut Vec<u32>) -> Option<()> {
        let (old, new) = self.sizes;
        let mut left = (ids.len() as u64 * old).min(input).div_ceil(new);
        for &id in ids {
            let parts = left.min(old / new);
            left -= parts;
            self.block(id, parts as u32, out)?;
        }
        Some(())
    }

    fn block(&mut self, id: u32, mut parts: u32, out: &mut Vec<u32>) -> Option<()> {
        let at = id as usize;
        if at >= self.runs.len() {
            self.runs.resize(at + 1, (0, 0));
        }
        let known = [self.runs[at]];
        let more = match parts > known[0].1 {
            true => self.more.get(&id).map_or(&[][..], Vec::as_slice),
            false => &[],
        };
        for &(first, count) in known.iter().chain(more) {
            let taken = count.min(parts);
            out.extend(first..first + taken);
            parts -= taken;
        }
        if parts > 0 {
            let run = (self.next, parts);
            self.next = self.next.checked_add(parts).filter(|&n| n < NONE)?;
            out.extend(run.0..self.next);
            match self.runs[at].1 {
                0 => self.runs[at] = run,
                _ => self.more.entry(id).or_default().push(run),
            }
        }
        Some(())
    }
}

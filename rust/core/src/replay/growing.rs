//! The trace as a radix tree that grows row by row: runs are split where a row parts from an earlier one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::prompt_error::PromptError;
use super::runs::Runs;
use super::stack::RowBlocks;
use super::{RowReplay, Totals};
use crate::ids::NONE;
use crate::trace::id_hash::IdHash;

/// A tier on runs that every row takes whole or not at all.
pub trait RunTier: Send + Sync {
    /// The runs, which grow.
    fn runs(&mut self) -> &mut Runs;

    /// Takes note of a run that was appended.
    fn added(&mut self);

    /// Takes note that `upper`, which was appended, now has the leading blocks of `run`.
    fn split(&mut self, run: u32, upper: u32);

    /// A run of a path that a request would leave with blocks at both ends, by position, and the blocks before the gap.
    fn cut(&self, _path: &[u32]) -> Option<(usize, u32)> {
        None
    }

    /// Replays a request by its path, and returns its hits in blocks.
    fn request(&mut self, path: &[u32], arrival_ns: i64) -> u32;

    /// The totals so far.
    fn totals(&self) -> Totals;
}

/// The runs of a replay in either form.
pub type TierRuns<'a> = Cow<'a, Runs>;

/// A tier on runs that are found while rows come; ids are dense, in order of first appearance, and form a prefix tree.
///
/// A row enters a run at its first block, so one look-up by that block finds it. Memory is by runs, at most three a
/// row.
pub struct Growing<T> {
    tier: T,
    per_id: u64,
    /// The run that begins with a block, by the block's number.
    begins: HashMap<u64, u32, BuildHasherDefault<IdHash>>,
    path: Vec<u32>,
    /// The number of the first block of each run of the path; none for blocks of the row alone.
    numbers: Vec<Option<u64>>,
}

impl<T: RunTier> Growing<T> {
    /// A tier without runs; each id is `per_id` blocks.
    pub fn new(tier: T, per_id: u32) -> Self {
        Self {
            tier,
            per_id: u64::from(per_id),
            begins: HashMap::default(),
            path: Vec::new(),
            numbers: Vec::new(),
        }
    }

    fn push(&mut self, len: u32, depth: u32, parent: u32) -> u32 {
        let run = self.tier.runs().push(len, depth, parent);
        self.tier.added();
        run
    }

    /// The run with the `most` blocks from a number on, or with fewer if an earlier row parts there.
    fn run_at(&mut self, number: u64, most: u32, depth: u32, parent: u32) -> u32 {
        let Some(&run) = self.begins.get(&number) else {
            let new = self.push(most, depth, parent);
            self.begins.insert(number, new);
            return new;
        };
        if self.tier.runs().len[run as usize] <= most {
            return run;
        }
        self.split(run, Some(number), most)
    }

    /// Give the first blocks of a run, which begins with block `number`, a run of their own, and return it.
    fn split(&mut self, run: u32, number: Option<u64>, most: u32) -> u32 {
        let runs = self.tier.runs();
        let upper = runs.push(most, runs.depth[run as usize], runs.parent[run as usize]);
        runs.len[run as usize] -= most;
        runs.depth[run as usize] += most;
        runs.parent[run as usize] = upper;
        self.tier.added();
        self.tier.split(run, upper);
        if let Some(number) = number {
            self.begins.insert(number, upper);
            self.begins.insert(number + u64::from(most), run);
        }
        upper
    }
}

impl<T: RunTier> RowReplay for Growing<T> {
    fn row(
        &mut self,
        mut ids: &[u32],
        blocks: RowBlocks,
        arrival_ns: i64,
    ) -> Result<u32, PromptError> {
        blocks.check()?;
        self.path.clear();
        self.numbers.clear();
        let (mut depth, mut parent, mut left) = (0, NONE, blocks.named);
        while left > 0 {
            let pairs = ids.iter().zip(&ids[1..]);
            let same = 1 + pairs.take_while(|(a, b)| **a + 1 == **b).count();
            let mut number = u64::from(ids[0]) * self.per_id;
            let end = number + left.min(same as u64 * self.per_id);
            left -= end - number;
            ids = &ids[same..];
            while number < end {
                let run = self.run_at(number, (end - number) as u32, depth, parent);
                let len = self.tier.runs().len[run as usize];
                self.path.push(run);
                self.numbers.push(Some(number));
                number += u64::from(len);
                depth += len;
                parent = run;
            }
        }
        if blocks.private > 0 {
            let run = self.push(blocks.private as u32, depth, parent);
            self.path.push(run);
            self.numbers.push(None);
        }
        if let Some((at, most)) = self.tier.cut(&self.path) {
            let upper = self.split(self.path[at], self.numbers[at], most);
            self.path.insert(at, upper);
        }
        Ok(self.tier.request(&self.path, arrival_ns))
    }

    fn totals(&self) -> Totals {
        self.tier.totals()
    }
}

//! The curve of least recently used from a sample of the ids (SHARDS, Waldspurger et al. 2015).

use super::stack::{Cut, RecencyStack, RowBlocks, SampledBlock};
use crate::trace::columns::Columns;
use crate::trace::sampler::{Sample, Sampler, Taken, EXACT, GROUPS};

/// The curve of a sample, and curves of disjoint parts of it, whose spread gives the error.
///
/// A sampled block stands for the blocks between it and the sampled block before it in its prompt, so a prefix keeps
/// its length whichever of its blocks are sampled; the first one stands for as many more as sampled blocks are apart
/// on average. Both have the expectation of counting each block as often as it is.
pub struct SampledCurve {
    cut: Cut,
    per_id: u64,
    /// Blocks from one sampled block to the next: of the whole sample, and of a part.
    apart: [u64; 2],
    /// Blocks to one capacity of the steps: a 64th of what sampled ids are apart keeps the steps few.
    unit: u64,
    stacks: Vec<RecencyStack>,
    row: Vec<SampledBlock>,
    /// Requests so far.
    pub requests: u64,
    /// Prompt tokens so far.
    pub input_tokens: u64,
    /// References so far, sampled or not.
    pub references: u64,
    /// References that may hit.
    pub countable: u64,
    /// The highest number of a sampled id, plus one.
    pub ids: u64,
}

impl SampledCurve {
    /// An empty curve; each id is `per_id` blocks.
    pub fn new(cut: Cut, per_id: u64, sample: Sample) -> Self {
        let apart = sample.inverse() * per_id;
        Self {
            cut,
            per_id,
            apart: [apart, apart * u64::from(GROUPS)],
            unit: (sample.inverse() / 64).max(1),
            stacks: (0..=GROUPS)
                .map(|_| RecencyStack::new(cut.block_size))
                .collect(),
            row: Vec::new(),
            requests: 0,
            input_tokens: 0,
            references: 0,
            countable: 0,
            ids: 0,
        }
    }

    /// References a row: its blocks, its sampled ids with their positions and groups, and the leading ids counted
    /// exactly.
    pub fn row(&mut self, blocks: RowBlocks, ids: &[u32], taken: &[Taken], exact: u32) {
        let whole = blocks.named / self.per_id;
        let private = blocks.private + blocks.named - whole * self.per_id;
        for part in 0..=GROUPS {
            let apart = self.apart[usize::from(part > 0)];
            let mut before = 0;
            let mut countable = 0;
            self.row.clear();
            for (&id, &Taken { at, group }) in ids.iter().zip(taken) {
                let at = u64::from(at);
                if at >= whole || (part > 0 && group != EXACT && group != part - 1) {
                    continue;
                }
                let first = if at < u64::from(exact) {
                    self.per_id
                } else {
                    apart
                };
                let end = at * self.per_id + first;
                self.row.push(SampledBlock {
                    id,
                    weight: (end - before) as u32,
                });
                before = end;
                countable += usize::from(at * self.per_id < blocks.limit);
                self.ids = self.ids.max(u64::from(id) + 1);
            }
            let stack = &mut self.stacks[usize::from(part)];
            stack.sampled_row(&self.row, countable, self.unit, private);
        }
        self.requests += 1;
        self.references += blocks.named + blocks.private;
        self.countable += blocks.limit;
    }

    /// References the rows of columns whose ids a sampler took.
    pub fn rows(&mut self, sampler: &Sampler, columns: &Columns) {
        for (k, row) in sampler.rows.iter().enumerate() {
            let (from, to) = (columns.id_offsets[k], columns.id_offsets[k + 1]);
            let taken = &sampler.taken[from as usize..to as usize];
            let (input, output) = (columns.input_tokens[k], columns.output_tokens[k]);
            let all = u64::from(row.ids);
            let blocks = self.cut.row(input as u64, output as u64, all, self.per_id);
            self.row(blocks, columns.ids(k), taken, row.exact);
            self.input_tokens += input as u64;
        }
    }

    /// Hits at capacities in ascending order: of the whole sample, then of each part.
    pub fn at(&self, capacities: &[u64]) -> Vec<Vec<i64>> {
        let sizes: Vec<u64> = capacities.iter().map(|c| c / self.unit).collect();
        self.stacks.iter().map(|s| s.hits.at(&sizes)).collect()
    }
}

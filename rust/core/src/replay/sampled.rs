//! The curve of least recently used from a sample of the ids (SHARDS, Waldspurger et al. 2015).

use super::stack::{Cut, RecencyStack, RowBlocks, SampledBlock};
use crate::trace::columns::Columns;
use crate::trace::sampler::{Sample, Sampler, Taken, EXACT, GROUPS};

/// The sampled blocks of a row, the block behind the last one, and how many may hit.
#[derive(Clone, Debug, Default)]
struct SampledPart {
    blocks: Vec<SampledBlock>,
    end: u64,
    countable: usize,
}

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
    /// Of both, blocks to one capacity of the steps: a 64th of what sampled ids are apart keeps the steps few.
    units: [u64; 2],
    /// Of the whole sample, then of each part.
    stacks: Vec<RecencyStack>,
    rows: Vec<SampledPart>,
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
    /// Ids that are counted exactly.
    pub exact_ids: u64,
}

impl SampledPart {
    /// Adds a block that stands for all blocks from the one before it up to `end`.
    fn push(&mut self, id: u32, end: u64, may_hit: bool) {
        self.blocks.push(SampledBlock {
            id,
            weight: (end - self.end) as u32,
        });
        self.end = end;
        self.countable += usize::from(may_hit);
    }
}

impl SampledCurve {
    /// An empty curve; each id is `per_id` blocks.
    pub fn new(cut: Cut, per_id: u64, sample: Sample) -> Self {
        let apart = sample.inverse() * per_id;
        Self {
            cut,
            per_id,
            apart: [apart, apart * u64::from(GROUPS)],
            units: [1, u64::from(GROUPS)].map(|parts| (sample.inverse() * parts / 64).max(1)),
            stacks: (0..=GROUPS)
                .map(|_| RecencyStack::new(cut.block_size))
                .collect(),
            rows: vec![SampledPart::default(); 1 + usize::from(GROUPS)],
            requests: 0,
            input_tokens: 0,
            references: 0,
            countable: 0,
            ids: 0,
            exact_ids: 0,
        }
    }

    /// References a row: its blocks, its sampled ids with their positions and groups, and the leading ids counted
    /// exactly.
    pub fn row(&mut self, blocks: RowBlocks, ids: &[u32], taken: &[Taken], exact: u32) {
        let whole = blocks.named / self.per_id;
        let private = blocks.private + blocks.named - whole * self.per_id;
        for row in &mut self.rows {
            row.blocks.clear();
            (row.end, row.countable) = (0, 0);
        }
        for (&id, taken) in ids.iter().zip(taken) {
            let at = u64::from(taken.at);
            if at >= whole {
                break;
            }
            let counted = (taken.at < exact).then_some(self.per_id);
            let may_hit = at * self.per_id < blocks.limit;
            let [all, parts] = self
                .apart
                .map(|apart| at * self.per_id + counted.unwrap_or(apart));
            self.rows[0].push(id, all, may_hit);
            let own = match taken.group {
                EXACT => 1..=usize::from(GROUPS),
                group => usize::from(group) + 1..=usize::from(group) + 1,
            };
            for row in &mut self.rows[own] {
                row.push(id, parts, may_hit);
            }
            self.ids = self.ids.max(u64::from(id) + 1);
        }
        for (part, (row, stack)) in self.rows.iter().zip(&mut self.stacks).enumerate() {
            let unit = self.units[usize::from(part > 0)];
            stack.sampled_row(&row.blocks, row.countable, unit, private);
        }
        self.requests += 1;
        self.references += blocks.named + blocks.private;
        self.countable += blocks.limit;
    }

    /// References the rows of columns whose ids a sampler took.
    pub fn rows(&mut self, sampler: &Sampler, columns: &Columns) {
        self.exact_ids = u64::from(sampler.exact_ids());
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
        let units = self.units;
        let sizes = units.map(|unit| capacities.iter().map(|c| c / unit).collect::<Vec<_>>());
        let stacks = self.stacks.iter().enumerate();
        stacks
            .map(|(part, stack)| stack.hits.at(&sizes[usize::from(part > 0)]))
            .collect()
    }
}

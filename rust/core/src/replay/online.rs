//! Replays of one trace that is read row by row: several tiers at once, and the figures of each.

use std::io::Write;

use sha2::{Digest, Sha256};

use super::prompt_error::PromptError;
use super::stack::Cut;
use super::{RowReplay, Totals};
use crate::trace::columns::Columns;

/// One tier and its hits so far.
struct Lane {
    replay: Box<dyn RowReplay>,
    figures: Figures,
    tokens_by_request: Sha256,
}

/// Hits of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Blocks found.
    pub hits: u64,
    /// Of these, the blocks that may count as hits.
    pub hit_blocks: u64,
    /// Prompt tokens in `hit_blocks`.
    pub hit_tokens: u64,
}

/// Tiers that are given the same rows.
pub struct Online {
    cut: Cut,
    per_id: u64,
    /// True if every named block may count as a hit, as in a cache without prefixes.
    all_count: bool,
    lanes: Vec<Lane>,
    text: Vec<u8>,
    /// Requests so far.
    pub requests: u64,
    /// Prompt tokens so far.
    pub input_tokens: u64,
    /// References to blocks so far.
    pub references: u64,
}

impl Online {
    /// No tiers yet; each id is `per_id` blocks of the cut.
    pub fn new(cut: Cut, per_id: u64, all_count: bool) -> Self {
        Self {
            cut,
            per_id,
            all_count,
            lanes: Vec::new(),
            text: Vec::new(),
            requests: 0,
            input_tokens: 0,
            references: 0,
        }
    }

    /// Adds an empty tier.
    pub fn add(&mut self, replay: Box<dyn RowReplay>) {
        self.lanes.push(Lane {
            replay,
            figures: Figures::default(),
            tokens_by_request: Sha256::new(),
        });
    }

    /// Replays the rows of columns; fails if the blocks are too many to be numbered.
    pub fn rows(&mut self, columns: &Columns) -> Result<(), PromptError> {
        for row in 0..columns.len() {
            let ids = columns.ids(row);
            let (input, output) = (columns.input_tokens[row], columns.output_tokens[row]);
            let (input, named) = (input as u64, ids.len() as u64);
            let blocks = self.cut.row(input, output as u64, named, self.per_id);
            let limit = if self.all_count {
                blocks.named
            } else {
                blocks.limit
            };
            for lane in &mut self.lanes {
                let hits = u64::from(lane.replay.row(ids, blocks, columns.arrival_ns[row])?);
                let counted = hits.min(limit);
                let tokens = (counted * self.cut.block_size).min(input);
                lane.figures.hits += hits;
                lane.figures.hit_blocks += counted;
                lane.figures.hit_tokens += tokens;
                self.text.clear();
                let between = if self.requests > 0 { "\n" } else { "" };
                // a vector takes every byte
                let _ = write!(self.text, "{between}{tokens}");
                lane.tokens_by_request.update(&self.text);
            }
            self.requests += 1;
            self.input_tokens += input;
            self.references += blocks.named + blocks.private;
        }
        Ok(())
    }

    /// The figures and totals of each tier, and the SHA-256 of its hit tokens of each request, as decimals on lines.
    pub fn answers(&self) -> Vec<(Figures, Totals, String)> {
        let answer = |lane: &Lane| {
            let digest = lane.tokens_by_request.clone().finalize();
            let text = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            (lane.figures, lane.replay.totals(), text)
        };
        self.lanes.iter().map(answer).collect()
    }
}

//! The plan of a step run: the number of iterations that can run before the scheduler must decide something.
//!
//! Ending early is always right, since the scheduler then decides and continues; ending late never is. So the bounds
//! below may be tighter than necessary.

use super::{Batch, Sequence};
use crate::store::contract::BatchStore;
use crate::store::Answer;

/// Each iteration of a step run is planned, and each plan stored: a long answer takes several step runs.
const MOST_ITERATIONS: u64 = 1_024;

impl Batch {
    /// Starts the composed step at `now_ns`, its first iteration `stall_ns` longer, and returns the time at which the
    /// batch next changes by itself.
    pub fn start<S: BatchStore + ?Sized>(
        &mut self,
        store: &S,
        now_ns: u64,
        stall_ns: u64,
    ) -> Answer<u64> {
        self.step_run.begin_ns = now_ns;
        self.step_run.stall_ns = stall_ns;
        self.step_run.end_ns = now_ns
            .saturating_add(self.step_ns())
            .saturating_add(stall_ns);
        self.step_run.iterations_left = if stall_ns > 0 || self.one_by_one {
            1
        } else {
            self.unchanged_iterations(store)?
        };
        Ok(self.plan_ends())
    }

    /// Plans the end times of the iterations of the step run; returns the last one.
    fn plan_ends(&mut self) -> u64 {
        self.step_run.planned_ends.clear();
        let mut decodes = self.shape().without_chunks();
        let chunks: Vec<(u64, u64)> = self
            .others
            .iter()
            .filter(|s| s.chunk > 0 && s.prefilling())
            .map(|s| (s.chunk, s.computed))
            .collect();
        let mut end = self.step_run.end_ns;
        for i in 1..self.step_run.iterations_left {
            decodes.decode_kv_tokens += decodes.decode_sequences;
            decodes.decode_max_kv_tokens += u64::from(decodes.decode_sequences > 0);
            let mut shape = decodes;
            for (chunk, past) in &chunks {
                shape.add_chunk(*chunk, past + i * chunk, &self.table);
            }
            end = end.saturating_add(self.duration_ns(&shape));
            self.step_run.planned_ends.push_back(end);
        }
        end
    }

    fn unchanged_iterations<S: BatchStore + ?Sized>(&self, store: &S) -> Answer<u64> {
        if self.is_empty() {
            return Ok(1); // nothing would ever end the step run
        }
        let block = self.config.block_size_tokens;
        let mut iterations = self.steady.until_end().min(MOST_ITERATIONS);
        if self.config.commit_ends_step_run {
            iterations = iterations.min(self.steady.until_fill());
        }
        for sequence in &self.others {
            let drafts = self.config.speculation.is_some();
            if drafts || (self.config.reserve_by_step && sequence.prefilling()) {
                return Ok(1);
            }
            iterations = iterations.min(own_limit(sequence));
            if self.config.commit_ends_step_run {
                iterations = iterations
                    .min((block - sequence.computed % block).div_ceil(sequence.chunk.max(1)));
            }
        }
        if iterations <= 1 {
            return Ok(1);
        }
        let spare = store.spare_blocks();
        let others_need = |iterations: u64| -> Answer<u64> {
            let mut needed = 0;
            for s in self.others.iter().filter(|s| !s.prefilling()) {
                needed += if self.config.reserve_by_step {
                    store.lacking_blocks(s.lease, s.computed + iterations)?
                } else {
                    // requested before its use, and it may cause evictions
                    blocks_needed(s, iterations, block) + u64::from(self.config.asks_every_step)
                };
            }
            Ok(needed)
        };
        let iterations = self.steady.iterations_within(spare, iterations);
        if others_need(iterations)? == 0 {
            return Ok(iterations);
        }
        let needed = |iterations: u64| -> Answer<u64> {
            Ok(others_need(iterations)?.saturating_add(self.steady.blocks(iterations)))
        };
        if needed(iterations)? <= spare {
            return Ok(iterations);
        }
        most_that_fit(1, iterations, |most| Ok(needed(most)? <= spare))
    }
}

/// Largest number of iterations whose blocks fit, between a number that fits and a larger one that does not. The need
/// for blocks must not fall with the number of iterations.
pub fn most_that_fit(
    mut fits: u64,
    mut fails: u64,
    fits_in: impl Fn(u64) -> Answer<bool>,
) -> Answer<u64> {
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        if fits_in(middle)? {
            fits = middle;
        } else {
            fails = middle;
        }
    }
    Ok(fits)
}

/// Iterations until the sequence finishes or changes its share of the budget.
fn own_limit(sequence: &Sequence) -> u64 {
    if sequence.chunk == 0 {
        return 1;
    }
    if sequence.prefilling() {
        let left = sequence.prefill_target - sequence.computed;
        return left / sequence.chunk;
    }
    if sequence.last_token_ns.is_none() {
        return 1;
    }
    sequence.total.saturating_sub(sequence.computed).max(1) // at least 1: a finished sequence leaves soon
}

/// Blocks that a decoding sequence requests within some iterations, beyond those it has.
fn blocks_needed(sequence: &Sequence, iterations: u64, block_size_tokens: u64) -> u64 {
    (sequence.computed + iterations)
        .div_ceil(block_size_tokens)
        .saturating_sub(sequence.blocks)
}

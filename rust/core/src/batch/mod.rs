//! The running batch of a replica, advanced in step runs: iterations of an unchanged batch that run here without a
//! call into Python. The rules are those of `spec/batch.py`, which runs one iteration at a time.
//!
//! | file | contents |
//! |---|---|
//! | `sequence` | one running sequence |
//! | `plan` | number of iterations until the batch changes |
//! | `durations` | cost of the composed step |
//! | `reserve` | the blocks that an iteration needs, reserved at its start |
//! | `advance` | running iterations: commits and tokens at their end |
//! | `speculation` | drafted tokens, and the number of them that are accepted |
//! | `steady_set` | sequences that decode one token in every iteration |

mod advance;
mod durations;
mod plan;
mod reserve;
mod sequence;
mod speculation;
mod steady_set;
#[cfg(test)]
mod steady_set_tests;
#[cfg(test)]
mod tests;

pub use plan::most_that_fit;
pub use sequence::Sequence;
pub use speculation::{Accepted, Speculation};

use std::collections::VecDeque;
use std::sync::Arc;

use crate::histogram::Histogram;
use crate::ids::BlockRange;
use crate::step_time::{StepShape, StepTimeTable};
use crate::store::contract::BatchStore;
use crate::store::{Answer, Reservation};
use steady_set::SteadySet;

/// Options of a replica's batch.
#[derive(Clone, Debug, Default)]
pub struct BatchConfig {
    /// Tokens that one KV block holds.
    pub block_size_tokens: u64,
    /// Upper bound on the tokens of one step, over all sequences (vLLM's option of that name).
    pub max_num_batched_tokens: u64,
    /// Layers of the model: the first layer is computed before the others.
    pub num_layers: u64,
    /// True if computed blocks are kept for other requests at all.
    pub cache_enabled: bool,
    /// True if blocks of the answer are kept too.
    pub cache_output: bool,
    /// Keys exist from scheduling on (vLLM): blocks are shared when the step that fills them begins.
    pub commit_at_begin: bool,
    /// Every decoding sequence requests blocks at every step, even if it needs none (SGLang).
    pub asks_every_step: bool,
    /// Capacity is counted in tokens, and every step reserves what it computes (cache groups).
    pub reserve_by_step: bool,
    /// Drafted tokens for decoding sequences; `None`: no speculation.
    pub speculation: Option<Speculation>,
    /// A commit sends on a channel: every commit ends the step run.
    pub commit_ends_step_run: bool,
    /// Host time added to every step.
    pub step_overhead_ns: u64,
    /// Minimum duration of a step: under asynchronous scheduling the host prepares the next step in this time.
    pub least_step_ns: u64,
    /// The end of an answer is known a step late: the sequence stays for one more step, which brings no token.
    pub late_ends: bool,
}

/// A finished iteration, for `--record all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Start time of the step.
    pub begin_ns: u64,
    /// Duration of the step.
    pub duration_ns: u64,
    /// Prompt tokens that the step computed.
    pub prefill_tokens: u64,
    /// Sequences that got one token each from the step.
    pub decode_sequences: u64,
}

/// Results of the end of an iteration.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Sequences that got their first token, in batch order.
    pub first_token: Vec<u32>,
    /// Sequences that finished, in batch order.
    pub finished: Vec<u32>,
    /// Blocks committed, if a commit ends the step run.
    pub committed: Vec<Committed>,
}

/// Blocks that a sequence has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The sequence.
    pub sequence: u32,
    /// Its blocks.
    pub blocks: BlockRange,
}

/// A step run: iterations of an unchanged batch. Times are ns.
#[derive(Debug, Default)]
struct StepRun {
    /// Iterations left, the current one included; 0 when idle.
    iterations_left: u64,
    begin_ns: u64,
    end_ns: u64,
    /// End times of the later iterations.
    planned_ends: VecDeque<u64>,
    /// Time that the current iteration waited in addition to its computation.
    stall_ns: u64,
}

/// Steps and tokens of a batch so far.
#[derive(Debug, Default)]
pub struct BatchCounts {
    /// Time between tokens of one sequence.
    pub itl: Histogram,
    /// Steps run.
    pub steps: u64,
    /// Output tokens generated.
    pub generated_tokens: u64,
    /// Drafted and accepted tokens.
    pub accepted: Accepted,
}

/// Logs that have not been taken yet; `None`: not logged.
#[derive(Debug, Default)]
struct Logs {
    steps: Option<Vec<StepRecord>>,
    /// Sequences that got a token after their first one.
    later_tokens: Option<Vec<u32>>,
}

/// The running batch.
#[derive(Debug, Default)]
pub struct Batch {
    config: BatchConfig,
    table: Arc<StepTimeTable>,
    /// Sequences that decode one token in every iteration.
    steady: SteadySet,
    /// All other sequences, in batch order: in prefill, out of token budget, or with drafted tokens.
    others: Vec<Sequence>,
    /// Sequences added so far.
    added: u64,
    budget_left: u64,
    step_run: StepRun,
    /// Steps and tokens so far.
    pub counts: BatchCounts,
    logs: Logs,
    /// True if every step run is a single iteration.
    one_by_one: bool,
}

impl StepRecord {
    /// Record of a step of the given shape, from its start to its end.
    pub fn of(shape: &StepShape, begin_ns: u64, end_ns: u64) -> Self {
        Self {
            begin_ns,
            duration_ns: end_ns - begin_ns,
            prefill_tokens: shape.new_tokens,
            decode_sequences: shape.decode_sequences,
        }
    }
}

impl Batch {
    /// An empty batch; machines of one kind share a table.
    pub fn new(config: BatchConfig, table: impl Into<Arc<StepTimeTable>>) -> Self {
        Self {
            steady: SteadySet::new(config.block_size_tokens),
            config,
            table: table.into(),
            ..Self::default()
        }
    }

    /// Starts logging every iteration for [`Batch::take_steps`].
    pub fn log_steps(&mut self) {
        self.logs.steps = Some(Vec::new());
    }

    /// Returns the iterations logged since the last call.
    pub fn take_steps(&mut self) -> Vec<StepRecord> {
        self.logs
            .steps
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Starts logging the sequences that get tokens, for [`Batch::take_later_tokens`]; iterations run one by one from
    /// then on.
    pub fn log_later_tokens(&mut self) {
        self.logs.later_tokens = Some(Vec::new());
        self.run_one_by_one();
    }

    /// Makes every step run a single iteration from now on.
    pub fn run_one_by_one(&mut self) {
        self.one_by_one = true;
    }

    /// Returns the sequences that got a token after their first one since the last call, in batch order.
    pub fn take_later_tokens(&mut self) -> Vec<u32> {
        self.logs
            .later_tokens
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// The step-time table.
    pub fn table(&self) -> &Arc<StepTimeTable> {
        &self.table
    }

    /// Token budget of a step.
    pub fn budget_tokens(&self) -> u64 {
        self.config.max_num_batched_tokens
    }

    /// Layers of the model.
    pub fn num_layers(&self) -> u64 {
        self.config.num_layers
    }

    /// Counts a step that was composed elsewhere.
    pub fn record_step(&mut self, step: StepRecord) {
        self.counts.steps += 1;
        if let Some(log) = &mut self.logs.steps {
            log.push(step);
        }
    }

    /// Number of running sequences.
    pub fn len(&self) -> usize {
        self.steady.len() + self.others.len()
    }

    /// True if no sequence runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens left in the budget of the next step.
    pub fn budget_left(&self) -> u64 {
        self.budget_left
    }

    /// Gives every running sequence its tokens of the next step, oldest first, and reserves the blocks that
    /// decoding needs, all or nothing. On a refusal nothing is reserved: remove the last sequence and call this
    /// again.
    pub fn begin<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<Reservation> {
        self.share_out(store)?;
        let reservation = self.reserve_blocks(store, now_ns)?;
        if reservation != Reservation::Refused {
            self.commit_scheduled(0, store, now_ns)?;
        }
        Ok(reservation)
    }

    /// Distributes the token budget in batch order.
    ///
    /// A sequence joins only while tokens are left, so there is at least one token for each. A sequence that computes
    /// a part of its prompt takes all the tokens left, so it is the last. The tokens of the steady set are therefore
    /// always available.
    fn share_out<S: BatchStore + ?Sized>(&mut self, store: &S) -> Answer<()> {
        let drafts = self.drafts();
        let all = self.config.max_num_batched_tokens;
        let mut left = all.saturating_sub(self.steady.len() as u64);
        for sequence in &mut self.others {
            sequence.chunk = sequence.wanted_tokens(drafts).min(left);
            if self.config.reserve_by_step && sequence.prefilling() {
                let (computed, target) = (sequence.computed, sequence.prefill_target);
                if computed < sequence.blocks {
                    // it joined late, with fewer reserved tokens than at its admission
                    sequence.chunk = sequence.chunk.min(sequence.blocks - computed);
                }
                sequence.chunk = store.chunk(sequence.lease, computed, target, sequence.chunk)?;
            }
            left -= sequence.chunk;
        }
        self.budget_left = left;
        Ok(())
    }

    /// True if the only needs of a decoding sequence are one token per iteration and now and then a block.
    fn has_steady_set(&self) -> bool {
        let config = &self.config;
        let each_step = config.asks_every_step || config.commit_at_begin || config.reserve_by_step;
        !each_step && config.speculation.is_none() && self.logs.later_tokens.is_none()
    }

    /// Tokens drafted for a decoding sequence.
    fn drafts(&self) -> u64 {
        self.config
            .speculation
            .as_ref()
            .map_or(0, Speculation::tokens)
    }

    /// Adds an admitted sequence to the step being composed; returns the tokens it got of the budget.
    pub fn add(&mut self, mut sequence: Sequence) -> u64 {
        self.step_run.iterations_left = self.step_run.iterations_left.min(1); // a step run is of an unchanged batch
        sequence.chunk = sequence.wanted_tokens(self.drafts()).min(self.budget_left);
        if self.config.reserve_by_step {
            sequence.chunk = sequence.chunk.min(sequence.blocks - sequence.computed);
        }
        self.budget_left -= sequence.chunk;
        self.added += 1;
        sequence.order = self.added;
        let chunk = sequence.chunk;
        self.others.push(sequence);
        chunk
    }

    /// Cuts the chunk of the last added sequence to end at a position whose state the store can keep. Only for stores
    /// that count capacity in tokens.
    pub fn align_last<S: BatchStore + ?Sized>(&mut self, store: &S) -> Answer<()> {
        let by_step = self.config.reserve_by_step;
        let last = self.others.last_mut().filter(|s| by_step && s.prefilling());
        if let Some(last) = last {
            let (computed, target) = (last.computed, last.prefill_target);
            let chunk = store.chunk(last.lease, computed, target, last.chunk)?;
            self.budget_left += last.chunk - chunk;
            last.chunk = chunk;
        }
        Ok(())
    }

    /// Start time of the current or last iteration.
    pub fn begin_ns(&self) -> u64 {
        self.step_run.begin_ns
    }

    /// Removes the last sequence (preemption); returns its tokens so far, or `None` if the batch is empty.
    pub fn pop_last(&mut self) -> Option<Sequence> {
        match (self.steady.last(), self.others.last()) {
            (Some(member), other) if other.is_none_or(|s| s.order < member.order) => {
                Some(self.steady.leave(member))
            }
            _ => self.others.pop(),
        }
    }

    /// Removes a sequence between two steps, as [`Batch::pop_last`] does for the last sequence.
    pub fn take_out(&mut self, id: u32) -> Option<Sequence> {
        if let Some(member) = self.steady.find(id) {
            return Some(self.steady.leave(member));
        }
        let at = self.others.iter().position(|s| s.id == id)?;
        Some(self.others.remove(at))
    }

    /// Tokens of a running sequence that have KV; `None` if the sequence does not run.
    pub fn computed_tokens(&self, id: u32) -> Option<u64> {
        if let Some(member) = self.steady.find(id) {
            return Some(self.steady.computed_tokens(member));
        }
        self.others.iter().find(|s| s.id == id).map(|s| s.computed)
    }

    /// Sequences that get their first token from the composed step, in batch order.
    pub fn first_tokens_due(&self) -> Vec<u32> {
        self.others
            .iter()
            .filter(|s| {
                let due = s.chunk > 0 && s.computed + s.chunk >= s.prefill_target;
                due && s.last_token_ns.is_none()
            })
            .map(|s| s.id)
            .collect()
    }
}

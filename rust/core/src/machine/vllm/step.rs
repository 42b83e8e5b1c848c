//! The tokens and the requests of a step.

use super::super::messages::Reading;
use super::super::Slot;
use super::blocks::Blocks;
use super::{Sequence, StageSteps, VllmConfig, VllmScheduler};
use crate::convert::fit;
use crate::step_time::{StepShape, StepTimeTable};
use crate::store::connector::StepCopies;
use crate::store::{Answer, Times};

/// A request's part of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheduled {
    pub slot: Slot,
    pub tokens: u64,
    /// True if all its known tokens are computed when the step has ended.
    pub brings_token: bool,
}

/// A step that has been decided.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// Requests in the order in which they were scheduled.
    pub scheduled: Vec<Scheduled>,
    pub shape: StepShape,
    /// Time at which the host has the tokens of the previous step.
    pub begin_ns: u64,
    /// Time at which the host has the tokens of this step.
    pub end_ns: u64,
    /// Time at which the GPU has computed it: the host may have its tokens later.
    pub computed_ns: u64,
    /// Copies between the pool and the tier below.
    pub copies: StepCopies,
    /// Prompts on other machines of which it begins the read.
    pub readings: Vec<Reading>,
    /// True if requests were sent back to the queue for it.
    pub preempts: bool,
    /// True if the copies that it ends with are sent.
    pub is_saved: bool,
}

impl Step {
    pub fn is_empty(&self) -> bool {
        self.scheduled.is_empty()
    }

    /// True if it computes nothing and copies nothing.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.copies.is_empty() && self.readings.is_empty()
    }

    /// True if it brings each of `requests` requests one token, and does nothing else.
    pub fn only_decodes(&self, requests: usize) -> bool {
        let counts = self.shape.new_tokens == 0 && self.scheduled.len() == requests;
        counts && self.copies.is_empty() && self.readings.is_empty() && requests > 0
    }

    /// Adds the tokens of a request to the shape.
    fn count(&mut self, s: &Sequence, tokens: u64, table: &StepTimeTable) {
        if s.decodes(tokens) {
            self.shape.add_decode(s.computed);
        } else {
            self.shape.add_chunk(tokens, s.computed, table);
        }
    }
}

impl<B: Blocks> VllmScheduler<B> {
    /// Ends the composition of a step: its tokens count as computed from now on.
    pub(super) fn composed(&mut self, slots: &[Slot], table: &StepTimeTable) -> Step {
        let mut step = Step::default();
        let has_lookahead = self.config.async_scheduling.has_lookahead();
        let pipeline = self.config.pipeline;
        let eligible = match pipeline.steps {
            StageSteps::Spaced => self.steps.decided + pipeline.stages as u64,
            _ => 0,
        };
        for &slot in slots {
            let s = &mut self.sequences[slot];
            let tokens = std::mem::take(&mut s.chunk);
            step.count(s, tokens, table);
            s.computed += tokens;
            s.flight.tokens += tokens;
            let brings_token = s.computed >= s.expected();
            s.is_chunk = !brings_token;
            if brings_token {
                s.flight.placeholders += u64::from(has_lookahead);
                s.flight.eligible = eligible;
            }
            s.held.claims &= !brings_token;
            step.scheduled.push(Scheduled {
                slot,
                tokens,
                brings_token,
            });
        }
        step
    }
}

impl Sequence {
    /// Assigns keys to blocks that are full within the first `tokens` tokens and have no key yet.
    pub fn key_step<B: Blocks>(
        &mut self,
        config: &VllmConfig,
        store: &mut B,
        tokens: u64,
    ) -> Answer<()> {
        if !config.cache_enabled {
            return Ok(());
        }
        let limit = if config.cache_output {
            tokens
        } else {
            tokens.min(self.prompt)
        };
        let full = limit / config.block_size_tokens;
        if full > self.held.keyed {
            store.commit(self.held.lease, fit::<u32>(full), Times::default())?;
            self.held.keyed = full;
        }
        Ok(())
    }
}

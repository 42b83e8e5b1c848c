//! Steps in which every running request decodes one token, and no request joins or leaves. Their cost depends on the
//! number of changes, not on the number of requests.
//!
//! Ending a step run early is always right, since the scheduler then decides and continues; ending it late never is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::engine::Desk;
use super::super::{AsyncScheduling, Replica};
use super::blocks::{Blocks, Turn, TurnAt};
use super::pace::Pace;
use super::{Sequence, VllmScheduler};
use crate::batch::most_that_fit;
use crate::step_time::StepShape;
use crate::store::Answer;

/// State kept while steps continue without a decision.
#[derive(Debug)]
pub(super) struct StepRun {
    /// Boundaries passed since the requests were last updated.
    done: u64,
    /// Boundaries left before one that needs a decision.
    left: u64,
    /// Actions by boundary, then by position among the running requests.
    turns: BinaryHeap<Reverse<(u64, usize, Turn)>>,
}

impl<B: Blocks> VllmScheduler<B> {
    /// Plans a step run in which no request joins, leaves or lacks a block, and sets the next boundary to its end.
    pub(super) fn plan_step_run(&mut self, desk: &Replica, store: &B) -> Answer<()> {
        let Some(flight) = &self.steps.flight else {
            return Ok(());
        };
        self.boundary_ns = Some(flight.end_ns);
        let left = if desk.logs_outputs() || desk.publishes_load() {
            0 // a boundary for each step
        } else {
            self.unchanged_boundaries(store)?
        };
        if left == 0 {
            return Ok(());
        }
        let (mut shape, mut end_ns) = (flight.shape, flight.end_ns);
        if let Some(lookahead) = &self.steps.lookahead {
            let mut computed_ns = lookahead.computed_ns;
            shape = lookahead.shape;
            for _ in 0..left {
                grow(&mut shape);
                let pace = Pace::behind(computed_ns, end_ns, &shape, desk);
                (computed_ns, end_ns) = (pace.computed_ns, pace.seen_ns);
            }
        } else {
            for _ in 0..left {
                grow(&mut shape);
                end_ns += desk.batch.duration_ns(&shape);
            }
        }
        self.boundary_ns = Some(end_ns);
        self.steps.step_run = Some(StepRun {
            done: 0,
            left,
            turns: self.turns(store),
        });
        Ok(())
    }

    /// Boundaries from the next one on at which each running request gets a token and one more step.
    fn unchanged_boundaries(&self, store: &B) -> Answer<u64> {
        let running = self.running.len();
        let lookahead = match &self.steps.lookahead {
            Some(step) => step.only_decodes(running),
            None => !self.config.async_scheduling.has_lookahead(),
        };
        let flight = self.steps.flight.as_ref();
        if !(lookahead && flight.is_some_and(|step| step.only_decodes(running))) {
            return Ok(0);
        }
        let budget = self.config.limits.max_num_scheduled_tokens > running as u64;
        if !self.remote.is_quiet() {
            return Ok(0);
        }
        if !self.waiting.is_empty() && self.has_free_seqs() && budget && !self.refused {
            return Ok(0);
        }
        let steps = 1 + u64::from(self.config.async_scheduling.has_lookahead());
        let mut left = u64::MAX;
        for &slot in &self.running {
            let s = &self.sequences[slot];
            if s.last_token_ns.is_none() || s.flight.tokens != steps || !store.is_quiet(s) {
                return Ok(0);
            }
            left = left.min(self.before_its_end(s));
            if self.refused {
                left = left.min(store.before_news(s, &self.config));
            }
        }
        self.within_free_blocks(left, store)
    }

    /// Boundaries that a request passes before the scheduler stops giving it steps.
    fn before_its_end(&self, s: &Sequence) -> u64 {
        let foreseen = self.config.async_scheduling == AsyncScheduling::Length;
        (s.total - s.known).saturating_sub(1 + u64::from(foreseen))
    }

    /// Largest number of boundaries, up to `left`, for which there are enough free blocks.
    fn within_free_blocks(&self, left: u64, store: &B) -> Answer<u64> {
        let spare = store.free_blocks();
        let fits_in = |boundaries: u64| -> Answer<bool> {
            let mut needed = 0;
            for &slot in &self.running {
                needed += store.growth(&self.sequences[slot], boundaries, &self.config)?;
            }
            Ok(needed <= spare)
        };
        if left == 0 || fits_in(left)? {
            return Ok(left);
        }
        most_that_fit(0, left, fits_in)
    }

    fn turns(&self, store: &B) -> BinaryHeap<Reverse<(u64, usize, Turn)>> {
        let mut turns = Vec::with_capacity(2 * self.running.len());
        for (at, &slot) in self.running.iter().enumerate() {
            let own = store.turns(&self.sequences[slot], &self.config);
            turns.extend(own.iter().map(|own| Reverse((own.boundary, at, own.turn))));
        }
        BinaryHeap::from(turns)
    }

    /// Passes the boundaries of the step run before a time.
    pub(super) fn advance(&mut self, desk: &mut Desk<'_, B>, before_ns: u64) -> Answer<()> {
        let Some(mut step_run) = self.steps.step_run.take() else {
            return Ok(());
        };
        while step_run.left > 0
            && self
                .steps
                .flight
                .as_ref()
                .is_some_and(|step| step.end_ns < before_ns)
        {
            self.pass_boundary(desk, &mut step_run)?;
        }
        self.steps.step_run = Some(step_run);
        Ok(())
    }

    /// Passes the rest of the step run and updates the requests.
    pub(super) fn advance_step_run(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        let Some(mut step_run) = self.steps.step_run.take() else {
            return Ok(());
        };
        while step_run.left > 0 {
            self.pass_boundary(desk, &mut step_run)?;
        }
        let token_ns = self.steps.flight.as_ref().map(|step| step.begin_ns);
        for at in 0..self.running.len() {
            let slot = self.running[at];
            let s = &mut self.sequences[slot];
            s.known += step_run.done;
            s.computed += step_run.done;
            if step_run.done > 0 {
                s.last_token_ns = token_ns;
            }
        }
        Ok(())
    }

    /// Ends the step run with the step that is computed now, if a request might be admitted then.
    pub(super) fn end_step_run(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        let budget = self.config.limits.max_num_scheduled_tokens > self.running.len() as u64;
        if !self.has_free_seqs() || !budget {
            return Ok(());
        }
        self.cut_step_run(desk)
    }

    /// Ends the step run with the step that is computed now.
    pub(super) fn cut_step_run(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        if self.steps.step_run.is_none() {
            return Ok(());
        }
        self.advance(desk, desk.now_ns)?;
        if let Some(step_run) = &mut self.steps.step_run {
            step_run.left = 0;
        }
        self.boundary_ns = self.steps.flight.as_ref().map(|step| step.end_ns);
        Ok(())
    }

    /// Ends the step in flight, each of whose requests gets a token, and decides the same step once more.
    fn pass_boundary(&mut self, desk: &mut Desk<'_, B>, step_run: &mut StepRun) -> Answer<()> {
        let Some(mut flight) = self.steps.flight.take() else {
            return Ok(());
        };
        let (requests, now_ns) = (self.running.len() as u64, flight.end_ns);
        desk.replica
            .step_of_engine(&flight.shape, flight.begin_ns, flight.end_ns);
        desk.replica.batch.counts.generated_tokens += requests;
        if step_run.done > 0 {
            desk.replica
                .batch
                .counts
                .itl
                .add(now_ns - flight.begin_ns, requests);
        } else {
            for &slot in &self.running {
                let before_ns = self.sequences[slot].last_token_ns.unwrap_or(now_ns);
                desk.replica.batch.counts.itl.add(now_ns - before_ns, 1);
            }
        }
        self.cadence.decoded(self.any_could_join());
        step_run.done += 1;
        step_run.left -= 1;
        self.take_turns(desk.store, step_run, now_ns)?;
        grow(&mut flight.shape);
        flight.begin_ns = now_ns;
        if let Some(lookahead) = &mut self.steps.lookahead {
            flight.computed_ns = lookahead.computed_ns;
            grow(&mut lookahead.shape);
            flight.followed_by(lookahead, now_ns, desk.replica);
        } else {
            flight.end_ns = now_ns + desk.replica.batch.duration_ns(&flight.shape);
        }
        let waiting = self.not_running() as u64;
        if let Some(log) = &mut self.log {
            log.counts.end_ns = now_ns;
            let decided = self.steps.lookahead.as_ref().unwrap_or(&flight);
            log.scheduled(decided.begin_ns, &decided.shape, requests, waiting);
        }
        self.steps.flight = Some(flight);
        Ok(())
    }

    /// Allocates and keys the blocks that the step decided at a boundary needs and fills.
    fn take_turns(&mut self, store: &mut B, step_run: &mut StepRun, now_ns: u64) -> Answer<()> {
        while let Some(&Reverse((boundary, at, turn))) = step_run.turns.peek() {
            if boundary > step_run.done {
                break;
            }
            step_run.turns.pop();
            let s = &mut self.sequences[self.running[at]];
            let again = store.take_turn(s, TurnAt { boundary, turn }, &self.config, now_ns)?;
            step_run.turns.push(Reverse((again, at, turn)));
        }
        Ok(())
    }
}

/// Makes each decoding request of a step one token longer.
fn grow(shape: &mut StepShape) {
    shape.decode_kv_tokens += shape.decode_sequences;
    shape.decode_max_kv_tokens += 1;
}

//! The running requests' share of a step, in order of admission; preemption if blocks run out.

use super::super::engine::Desk;
use super::super::Slot;
use super::blocks::Blocks;
use super::remote::release;
use super::{VllmScheduler, MOST_FRUITLESS};
use crate::store::{Answer, StoreError};

/// Remaining budget of a step while it is composed.
#[derive(Debug)]
pub(super) struct Composition {
    /// Tokens left in the budget.
    pub budget: u64,
    /// Upper bound on the tokens of one request.
    pub cap: u64,
    /// Requests that got tokens, in order.
    pub slots: Vec<Slot>,
    pub preempted: bool,
    /// True if no prompt is computed in this step.
    pub defers_prefills: bool,
    /// True if a prompt is computed in it.
    pub has_prefill: bool,
}

impl<B: Blocks> VllmScheduler<B> {
    /// An empty step: its budget, and the bound on one request if there are others.
    pub(super) fn composition(&self) -> Composition {
        let requests = self.running.len() + self.not_running();
        let decodes = || self.running.iter().any(|&s| !self.sequences[s].is_chunk);
        Composition {
            budget: self.config.limits.max_num_scheduled_tokens,
            cap: self.config.request_tokens(requests as u64),
            slots: Vec::with_capacity(self.running.len()),
            preempted: false,
            defers_prefills: self.cadence.holds() && decodes(),
            has_prefill: false,
        }
    }

    /// Gives the running requests their tokens and blocks while the budget lasts.
    pub(super) fn schedule_running(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
    ) -> Answer<()> {
        let mut at = 0;
        while at < self.running.len() && step.budget > 0 {
            let slot = self.running[at];
            let s = &self.sequences[slot];
            let not_yet = self.steps.decided < s.flight.eligible;
            if not_yet || (step.defers_prefills && s.is_chunk) {
                at += 1;
                continue;
            }
            let tokens = s.lacking(&self.config).min(step.cap).min(step.budget);
            // a state must end at a position that can be kept, for which a step may have too few tokens left
            let tokens = desk
                .store
                .chunk(s.held.lease, s.computed, s.known, tokens)?;
            if tokens == 0 {
                at += 1;
                continue;
            }
            let end = s.computed + tokens;
            while !self.grow(desk.store, slot, end, desk.now_ns)? {
                let victim = self.victim();
                if !self.is_written(desk.store, self.running[victim]) {
                    return Ok(());
                }
                self.expect_progress(victim)?;
                if victim < at {
                    at -= 1;
                }
                if self.preempt(desk, step, victim)? == slot {
                    break;
                }
            }
            if !self.sequences[slot].is_running {
                if self.config.by_priority {
                    continue;
                }
                break;
            }
            let s = &mut self.sequences[slot];
            s.key_step(&self.config, desk.store, end.min(s.known))?;
            s.chunk = tokens;
            step.has_prefill |= s.is_chunk;
            step.budget -= tokens;
            step.slots.push(slot);
            at += 1;
        }
        Ok(())
    }

    /// Allocates blocks for a running request up to `end` tokens; false if there are too few free blocks.
    fn grow(&mut self, store: &mut B, slot: Slot, end: u64, now_ns: u64) -> Answer<bool> {
        let s = &mut self.sequences[slot];
        store.grow(s, end, &self.config, now_ns)
    }

    /// The request to preempt: the last to be admitted, or the first of those with the greatest (priority, arrival).
    fn victim(&self) -> usize {
        if !self.config.by_priority {
            return self.running.len() - 1;
        }
        let mut worst = 0;
        for (at, &slot) in self.running.iter().enumerate() {
            if self.rank(slot) > self.rank(self.running[worst]) {
                worst = at;
            }
        }
        worst
    }

    fn rank(&self, slot: Slot) -> (i64, u64) {
        let s = &self.sequences[slot];
        (s.position.priority, s.position.arrival_ns)
    }

    /// Returns an error if the most urgent requests only preempt each other.
    fn expect_progress(&mut self, victim: usize) -> Answer<()> {
        if !self.config.by_priority {
            return Ok(());
        }
        let there = self.running.iter().copied().chain(self.waiting.first());
        let most_urgent = there.map(|slot| self.rank(slot)).min();
        self.fruitless += u64::from(most_urgent == Some(self.rank(self.running[victim])));
        if self.fruitless == MOST_FRUITLESS {
            return Err(StoreError::NoProgress(MOST_FRUITLESS));
        }
        Ok(())
    }

    /// Sends the running request at a position back to the queue, and returns it.
    ///
    /// Its tokens of this step return to the budget; those of steps in flight are stale.
    fn preempt(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
        at: usize,
    ) -> Answer<Slot> {
        let slot = self.running.remove(at);
        let s = &mut self.sequences[slot];
        step.preempted = true;
        if s.chunk > 0 {
            step.budget += std::mem::take(&mut s.chunk);
            step.slots.retain(|&scheduled| scheduled != slot);
        }
        if let Some(connector) = desk.store.connector() {
            connector.preempted(s.request);
        }
        release(desk.store, s.held.lease, desk.now_ns)?;
        let computed = std::mem::take(&mut s.computed);
        (s.held.blocks, s.held.keyed, s.flight.placeholders) = (0, 0, 0);
        s.flight.stale = s.flight.tokens;
        (s.is_running, s.held.claims) = (false, false);
        self.waiting.push_preempted(slot, s);
        desk.preempted(slot, computed, &mut self.log);
        Ok(slot)
    }
}

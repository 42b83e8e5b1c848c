//! Steps one after another, or decided while the previous step is computed.

use super::super::engine::{Desk, EngineScheduler};
use super::super::messages::Incoming;
use super::super::{Replica, Slot};
use super::blocks::Blocks;
use super::sequence::Sequence;
use super::step::Step;
use super::{VllmScheduler, MOST_FRUITLESS};
use crate::store::{Answer, StoreError};

impl<B: Blocks> EngineScheduler for VllmScheduler<B> {
    type Store = B;

    fn enqueue(&mut self, desk: &mut Desk<'_, B>, slot: Slot) -> Answer<()> {
        if self.log.is_some() {
            // earlier steps are logged with the length of the queue without this request
            self.catch_up(desk, desk.now_ns)?;
        }
        desk.queued(slot);
        if self.is_full(desk.replica) {
            desk.turned_away(slot);
            return Ok(());
        }
        let mut sequence = Sequence::new(&desk.replica.requests[slot]);
        if desk.replica.hands_over(slot) {
            sequence.total = sequence.prompt + 1;
        }
        self.queue(desk, slot, sequence)
    }

    fn receive(&mut self, desk: &mut Desk<'_, B>, incoming: Incoming) -> Answer<()> {
        self.handed_over(desk, incoming)
    }

    fn prompt_read(&mut self, desk: &mut Desk<'_, B>, slot: Slot) -> Answer<()> {
        self.remote.read.push(slot);
        if self.steps.flight.is_none() {
            self.boundary_ns.get_or_insert(desk.now_ns);
        }
        Ok(())
    }

    /// Aborts a request; a running request leaves at the next boundary.
    fn abort(&mut self, desk: &mut Desk<'_, B>, slot: Slot) -> Answer<()> {
        self.cut_step_run(desk)?;
        let sequence = self.sequences.get(slot);
        if sequence.is_some_and(|s| self.waiting.remove(slot, s)) {
            self.end_waiting(desk.store, slot, desk.now_ns)?;
            self.leave(desk, slot);
            if self.steps.flight.is_none() && !self.remote.hands_nothing_over() {
                self.boundary_ns.get_or_insert(desk.now_ns);
            }
            return Ok(());
        }
        self.aborted.push(slot);
        if self.steps.flight.is_none() && self.steps.pipeline.is_none() {
            self.boundary_ns.get_or_insert(desk.now_ns);
        }
        Ok(())
    }

    fn at_boundary(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        self.boundary_ns = None;
        if let Some(pipeline) = self.steps.pipeline.take() {
            self.steps.pipeline = Some(self.pipelined_boundary(desk, pipeline)?);
            return Ok(());
        }
        self.advance_step_run(desk)?;
        if !self.steps.launching && self.saves(desk)? {
            return Ok(());
        }
        self.release_aborted(desk)?;
        let launched = std::mem::take(&mut self.steps.launching);
        if let Some(mut step) = self.steps.flight.take_if(|_| !launched) {
            self.keep_stores(&mut step);
            if !step.is_empty() {
                desk.replica
                    .step_of_engine(&step.shape, step.begin_ns, step.end_ns);
                self.step_ended(desk, &step)?;
                desk.replica.publish(self.running.len(), desk.store)?;
            }
        }
        if !launched {
            self.report_copies(desk)?;
            self.steps.flight = self.steps.lookahead.take();
            if let Some(mut step) = self.steps.flight.take() {
                self.begin_copies(desk, &mut step)?;
                self.steps.flight = Some(step);
            } else if self.starts(desk)? {
                return Ok(());
            }
        }
        if self.config.async_scheduling.has_lookahead() {
            if let Some(mut flight) = self.steps.flight.take() {
                if let Some(mut lookahead) = self.next_step(desk)? {
                    if lookahead.is_empty() {
                        lookahead.begin_ns = flight.end_ns;
                        (lookahead.end_ns, lookahead.computed_ns) =
                            (flight.end_ns, flight.computed_ns);
                    } else {
                        flight.followed_by(&mut lookahead, desk.now_ns, desk.replica);
                    }
                    self.log_step(&lookahead);
                    self.steps.lookahead = Some(lookahead).filter(|step| !step.is_idle());
                }
                self.steps.flight = Some(flight);
            }
        }
        self.plan_step_run(desk.replica, desk.store)
    }

    fn catch_up(&mut self, desk: &mut Desk<'_, B>, before_ns: u64) -> Answer<()> {
        self.advance(desk, before_ns)
    }

    fn boundary_ns(&self) -> Option<u64> {
        self.boundary_ns
    }

    fn queued(&self) -> usize {
        self.not_running()
    }

    fn loading(&self) -> usize {
        self.remote.holding.len()
    }

    fn copy_ns(&self, replica: &Replica) -> Option<u64> {
        replica.next_copy_ns()
    }

    fn copy_ended(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        let came = desk.next_copy()?;
        self.remote.came.extend(came);
        self.send_late_loads(desk)?;
        if self.steps.flight.is_none() {
            self.boundary_ns.get_or_insert(desk.now_ns);
        }
        Ok(())
    }

    fn running(&self) -> usize {
        self.running.len()
    }
}

impl<B: Blocks> VllmScheduler<B> {
    /// Queues a request that has come; the step in flight may then be the last of its kind.
    pub(super) fn queue(
        &mut self,
        desk: &mut Desk<'_, B>,
        slot: Slot,
        sequence: Sequence,
    ) -> Answer<()> {
        self.sequences.put(slot, sequence);
        self.waiting.push(slot, &mut self.sequences[slot]);
        if self.steps.flight.is_none() {
            self.boundary_ns.get_or_insert(desk.now_ns);
        } else if self.waiting.first() == Some(slot) || !self.refused || self.config.is_adaptive() {
            self.end_step_run(desk)?;
        }
        Ok(())
    }

    /// Starts a step on an idle GPU, if there are requests. Returns true if the launch takes time; the next step is
    /// decided after the launch.
    fn starts(&mut self, desk: &mut Desk<'_, B>) -> Answer<bool> {
        loop {
            let Some(mut step) = self.next_step(desk)? else {
                self.send_stores(desk)?;
                return Ok(false);
            };
            let launched_ns = step.begins(desk.now_ns, desk.replica);
            self.log_step(&step);
            self.begin_copies(desk, &mut step)?;
            if !step.is_empty() {
                self.steps.flight = Some(step);
                self.steps.launching =
                    self.config.async_scheduling.has_lookahead() && launched_ns > desk.now_ns;
                if self.steps.launching {
                    self.boundary_ns = Some(launched_ns);
                }
                return Ok(self.steps.launching);
            }
            if step.preempts || step.end_ns > desk.now_ns {
                self.steps.flight = Some(step);
                return Ok(false);
            }
            // the engine polls: its next step begins at once
            self.keep_stores(&mut step);
            self.send_stores(desk)?;
            if !desk.store.has_more() {
                return Ok(false);
            }
        }
    }

    /// Decides the next step, which may be empty; `None` if there are no requests.
    pub(super) fn next_step(&mut self, desk: &mut Desk<'_, B>) -> Answer<Option<Step>> {
        let requests = self.running.len() + self.not_running();
        if requests == 0 && !desk.store.has_ended() && self.remote.hands_nothing_over() {
            return Ok(None);
        }
        self.steps.decided += 1;
        desk.store.begin_step();
        let mut composition = self.composition();
        self.schedule_running(desk, &mut composition)?;
        self.schedule_waiting(desk, &mut composition)?;
        self.cadence.composed(&composition, self.any_could_join());
        desk.replica.left_waiting(self.not_running());
        let mut step = self.composed(&composition.slots, desk.replica.batch.table());
        step.preempts = composition.preempted;
        self.decide_copies(desk, &mut step)?;
        self.expect_token(requests, &step)?;
        Ok(Some(step))
    }

    /// Returns an error if requests wait while nothing but copies happens: a small tier with lazy stores stores and
    /// evicts the same blocks in turn.
    fn expect_token(&mut self, requests: usize, step: &Step) -> Answer<()> {
        self.fruitless += u64::from(requests > 0 && step.is_empty() && !step.copies.is_empty());
        if self.fruitless == MOST_FRUITLESS {
            return Err(StoreError::NoToken(MOST_FRUITLESS));
        }
        Ok(())
    }

    pub(super) fn log_step(&mut self, step: &Step) {
        let (running, waiting) = (self.running.len() as u64, self.not_running() as u64);
        if let Some(log) = &mut self.log {
            log.scheduled(step.begin_ns, &step.shape, running, waiting);
        }
    }
}

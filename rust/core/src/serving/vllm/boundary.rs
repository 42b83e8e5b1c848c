//! Steps one after another, or one decided while another is computed.

use super::super::engine::EngineScheduler;
use super::super::{Place, Replica};
use super::blocks::Blocks;
use super::sequence::Sequence;
use super::step::Step;
use super::VllmScheduler;
use crate::batch::StepRecord;
use crate::store::Answer;

impl<B: Blocks> EngineScheduler for VllmScheduler<B> {
    type Store = B;

    fn enqueue(
        &mut self,
        desk: &mut Replica,
        store: &mut B,
        place: Place,
        now_ns: u64,
    ) -> Answer<()> {
        if self.log.is_some() {
            // the lengths of the queue at steps before now are those of then
            self.catch_up(desk, store, now_ns)?;
        }
        desk.queued_by_engine(place, now_ns);
        let sequence = Sequence::new(&desk.requests[place as usize]);
        self.sequences.put(place, sequence);
        self.waiting.push(place, &self.sequences[place]);
        if self.flight.is_none() {
            self.boundary_ns.get_or_insert(now_ns);
        } else if self.waiting.first() == Some(place) || !self.refused {
            self.end_stretch(desk, store, now_ns)?;
        }
        Ok(())
    }

    fn at_boundary(&mut self, desk: &mut Replica, store: &mut B, now_ns: u64) -> Answer<()> {
        self.boundary_ns = None;
        self.run_stretch(desk, store)?;
        if let Some(step) = self.flight.take() {
            record(desk, &step);
            self.step_ended(desk, store, &step, now_ns)?;
        }
        self.flight = self.ahead.take();
        if self.flight.is_none() {
            self.flight = self.next_step(desk, store, now_ns, now_ns)?;
        }
        if let (true, Some(flight)) = (self.config.looks_ahead(), &self.flight) {
            let begin_ns = flight.end_ns;
            self.ahead = self.next_step(desk, store, now_ns, begin_ns)?;
        }
        self.plan_stretch(desk, store)
    }

    fn catch_up(&mut self, desk: &mut Replica, store: &mut B, now_ns: u64) -> Answer<()> {
        self.advance(desk, store, now_ns)
    }

    fn boundary_ns(&self) -> Option<u64> {
        self.boundary_ns
    }

    fn queued(&self) -> usize {
        self.waiting.len()
    }

    fn running(&self) -> usize {
        self.running.len()
    }
}

impl<B: Blocks> VllmScheduler<B> {
    /// Decides on the next step, which begins at a time from now on; `None` where there is nothing to compute.
    fn next_step(
        &mut self,
        desk: &mut Replica,
        store: &mut B,
        now_ns: u64,
        begin_ns: u64,
    ) -> Answer<Option<Step>> {
        if self.running.is_empty() && self.waiting.is_empty() {
            return Ok(None);
        }
        store.begin_step();
        let mut composition = self.composition();
        self.schedule_running(desk, store, &mut composition, now_ns)?;
        self.schedule_waiting(desk, store, &mut composition, now_ns)?;
        let mut step = self.composed(&composition.places, desk.batch.table());
        step.begin_ns = begin_ns;
        step.end_ns = begin_ns + desk.batch.duration_ns(&step.shape);
        self.log_step(&step);
        Ok(Some(step).filter(|step| !step.is_empty()))
    }

    fn log_step(&mut self, step: &Step) {
        let lengths = (self.running.len() as u64, self.waiting.len() as u64);
        if let Some(log) = &mut self.log {
            log.scheduled(step.begin_ns, &step.shape, lengths);
        }
    }
}

/// Counts a step that has ended.
pub(super) fn record(desk: &mut Replica, step: &Step) {
    desk.batch.record_step(StepRecord {
        begin_ns: step.begin_ns,
        duration_ns: step.end_ns - step.begin_ns,
        prefill_tokens: step.shape.new_tokens,
        decode_sequences: step.shape.decode_sequences,
    });
}

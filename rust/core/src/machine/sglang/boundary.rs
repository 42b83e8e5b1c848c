//! Steps one after another, or decided while the previous step is computed (SGLang's overlap schedule).

use super::super::engine::EngineScheduler;
use super::super::Slot;
use super::sequence::Sequence;
use super::step::Step;
use super::{Desk, Launched, SglangScheduler};
use crate::convert::fit;
use crate::engines::radix_store::RadixStore;
use crate::store::Answer;

/// Passes of the engine's loop after which all state that can change without a step or a storage has changed.
const LEAST_PASSES: usize = 3;

impl EngineScheduler for SglangScheduler {
    type Store = RadixStore;

    fn enqueue(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<()> {
        desk.queued(slot);
        let waiting = self.waiting.len() as u64;
        if self
            .config
            .max_queued_requests
            .is_some_and(|most| waiting >= most)
        {
            desk.turned_away(slot);
            return Ok(());
        }
        let sequence = Sequence::new(&desk.replica.requests[slot]);
        self.sequences.put(slot, sequence);
        self.waits(slot);
        if desk.store.has_storage() {
            desk.store.use_threads();
            self.prefetches.arrives(slot);
        }
        if self.steps.flight.is_none() {
            let known_ns = self.boundary_ns.unwrap_or(u64::MAX);
            self.boundary_ns = Some(known_ns.min(desk.now_ns.max(self.blocked_ns)));
        }
        Ok(())
    }

    /// Aborts a request; a request with KV leaves at the next boundary.
    fn abort(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<()> {
        if self.waiting.contains(&slot) {
            self.waiting.retain(|&waiting| waiting != slot);
            self.drop_prefetch(desk, slot)?;
            self.leave(desk, slot);
        } else {
            self.aborts_pending = true;
        }
        Ok(())
    }

    fn at_boundary(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        let ended = |step: &mut Step| step.end_ns.max(self.blocked_ns) <= desk.now_ns;
        if let Some(step) = self.steps.flight.take_if(ended) {
            desk.replica
                .step_of_engine(&step.shape, step.begin_ns, step.end_ns);
            self.step_ended(desk, &step)?;
            self.submit_writes(desk)?;
            if desk.replica.logs_stats(step.computes_prompts) {
                desk.replica.publish(self.running(), desk.store)?;
            }
        }
        self.release_aborted(desk)?;
        if self.steps.flight.is_none() {
            self.steps.flight = self.steps.lookahead.take();
        }
        let mut passes = 0;
        while self.steps.flight.is_none()
            && self.blocked_ns <= desk.now_ns
            && (passes < LEAST_PASSES || !self.is_settled(desk)?)
        {
            self.steps.flight = self.next_step(desk, desk.now_ns)?;
            passes += 1;
        }
        let end_ns = self.steps.flight.as_ref().map(|step| step.end_ns);
        // the next pass comes once the scheduler has waited
        let is_blocked = self.blocked_ns > desk.now_ns;
        let has_lookahead = self.config.async_scheduling.has_lookahead();
        if let (true, false, Some(end_ns)) = (has_lookahead, is_blocked, end_ns) {
            self.steps.lookahead = self.next_step(desk, end_ns)?;
        }
        self.boundary_ns = match end_ns {
            Some(_) if has_lookahead && is_blocked => Some(self.blocked_ns),
            Some(end_ns) => Some(end_ns.max(self.blocked_ns)),
            None => self.next_change(desk),
        };
        if self.steps.flight.is_none() && self.waiting.is_empty() {
            self.ratio.reset();
            desk.replica.publish(self.running(), desk.store)?;
        }
        Ok(())
    }

    fn catch_up(&mut self, _: &mut Desk<'_>, _: u64) -> Answer<()> {
        Ok(())
    }

    fn boundary_ns(&self) -> Option<u64> {
        self.boundary_ns
    }

    fn queued(&self) -> usize {
        self.waiting.len()
    }

    fn running(&self) -> usize {
        fit::<usize>(self.held)
    }
}

impl SglangScheduler {
    /// Decides the next step, which begins at `begin_ns` or later; `None` if there is nothing to compute.
    fn next_step(&mut self, desk: &mut Desk<'_>, begin_ns: u64) -> Answer<Option<Step>> {
        self.poll(desk)?;
        self.launched_join(desk.store)?;
        let step = match self.prefill_step(desk)? {
            Some(step) => Some(step),
            None => self.decode_step(desk)?,
        };
        self.write_back(desk)?;
        desk.replica.left_waiting(self.waiting.len());
        let Some(mut step) = step else {
            return Ok(None);
        };
        let begin_ns = begin_ns.max(self.blocked_ns);
        step.begin_ns = begin_ns;
        let compute_ns = desk.replica.batch.duration_ns(&step.shape);
        step.end_ns = self.end_ns(desk, &mut step, compute_ns);
        if step.computes_prompts {
            let members = step.members.iter().map(|member| member.0);
            self.steps.launched = Some(Launched {
                members: members.collect(),
                chunked: step.chunked,
            });
        }
        let waiting = self.waiting.len() as u64;
        if let Some(log) = &mut self.log {
            log.scheduled(begin_ns, &step.shape, self.held, waiting);
        }
        Ok(Some(step))
    }

    /// Time at which a scheduler without a step has something to do: once a copy ends, or a request waits no longer.
    fn next_change(&self, desk: &Desk<'_>) -> Option<u64> {
        let copy_ns = desk.replica.next_arrival().map(|(ns, _)| ns);
        let copy_ns = copy_ns.into_iter().chain(self.wait_ends_ns(desk)).min();
        let blocked_ns = Some(self.blocked_ns).filter(|&ns| ns > desk.now_ns);
        blocked_ns.or(copy_ns)
    }

    /// Moves the requests of the step decided before to the running requests, once their prompts are complete. The
    /// computed part of the chunked prompt enters the tree.
    fn launched_join(&mut self, store: &mut RadixStore) -> Answer<()> {
        if let Some(slot) = self.chunked {
            let s = &mut self.sequences[slot];
            if s.extend.end > s.extend.prefix {
                self.config.check_in(store, s)?;
                s.extend.prefix = s.extend.end;
            }
        }
        if let Some(launched) = self.steps.launched.take() {
            let (mut joining, chunked) = (launched.members, launched.chunked);
            let before = joining.len();
            let (now_chunked, sequences) = (self.chunked, &self.sequences);
            joining.retain(|&slot| {
                let continues = Some(slot) == now_chunked || Some(slot) == chunked;
                !(sequences[slot].is_finished || continues)
            });
            self.is_full &= joining.len() == before;
            if self.batch_size() == 0 && !joining.is_empty() {
                self.is_full = false;
            }
            self.running.append(&mut joining);
        }
        let (before, sequences) = (self.running.len(), &self.sequences);
        self.running.retain(|&p| !sequences[p].is_finished);
        let left = before - self.running.len();
        if !self.config.release.drops_finished_each_pass {
            self.lingering += left as u64;
        } else {
            self.is_full &= left == 0;
        }
        Ok(())
    }

    /// Requests that count as running.
    pub(super) fn batch_size(&self) -> u64 {
        self.running.len() as u64 + self.lingering
    }
}

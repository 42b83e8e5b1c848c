//! Selection of the next step's requests: running, then loaded, then waiting, while budget and slots last (semantics
//! 5).

use super::groups::Asked;
use super::plugins::Finished;
use super::settings::AsyncScheduling;
use super::{Now, Replica, Request, Slot};
use crate::convert::fit;
use crate::store::{Answer, LeaseId, MoveId, Reservation};

impl Replica {
    /// Number of free slots.
    fn slots(&self) -> u64 {
        let taken = self.running.slots.len() + self.loads.waiting + self.running.leaving.len();
        let taken = (taken + self.handover.target.arriving) as u64;
        self.config.scheduling.max_num_seqs.saturating_sub(taken)
    }

    /// True if a request has all it needs to join the next step.
    fn has_come(&self) -> bool {
        !(self.loads.loaded.is_empty() && self.handover.target.arrived.is_empty())
    }

    /// True if a request waits for admission or has arrived from another machine.
    pub(super) fn has_waiting(&self) -> bool {
        self.has_come()
            || !(self.arrivals.queue.is_empty() && self.handover.target.asking.is_empty())
    }

    /// True if a request could join at a boundary.
    pub(super) fn could_admit(&self) -> bool {
        self.has_come() || (self.slots() > 0 && self.batch.budget_left() > 0)
    }

    /// True if the step that starts now must be the only step until the next boundary.
    pub(super) fn wants_boundary(&self) -> bool {
        self.has_come() || (self.has_waiting() && !self.arrivals.refused && self.could_admit())
    }

    /// Composes the next step; returns the moves that free its blocks.
    ///
    /// With lookahead, the step is composed as it was decided when the previous step began. The results of that step
    /// are visible only afterwards, or at once if no request was scheduled.
    pub(super) fn compose(&mut self, now: &mut Now<'_>) -> Answer<Vec<MoveId>> {
        let mut reservation = self.decide(now)?;
        self.note_waiting();
        let has_lookahead = self.config.scheduling.async_scheduling.has_lookahead();
        if has_lookahead {
            for slot in std::mem::take(&mut self.running.leaving) {
                self.release_leaving(now, slot)?;
            }
            self.arrivals.queue.hide_after(None);
            if self.batch.is_empty() {
                reservation = self.decide(now)?;
                self.note_waiting();
            }
        }
        if has_lookahead || self.batch.is_empty() {
            self.publish(self.running(), now.store)?;
        }
        Ok(reservation)
    }

    /// Notes how many requests the composition of the next step has left waiting, of those that it could see.
    fn note_waiting(&mut self) {
        if self.publishes_load() {
            let queue = &self.arrivals.queue;
            let hidden = queue
                .iter()
                .filter(|&slot| !queue.can_see(&self.requests[slot]));
            self.left_waiting(self.queued() + self.loading() - hidden.count());
        }
    }

    /// Removes requests that have generated their last token from the step.
    pub(super) fn step_ended(&mut self, now: &mut Now<'_>, finished: &[Slot]) -> Answer<()> {
        for &slot in finished {
            self.running.remove(slot);
            if self.requests[slot].handover.sent_on {
                continue;
            }
            if self.config.scheduling.async_scheduling.has_lookahead() {
                self.running.leaving.push(slot);
                self.finished(now, slot);
            } else {
                self.release(now, slot)?;
                self.finished(now, slot);
                self.requests.free(slot);
            }
        }
        if self.config.scheduling.async_scheduling.has_lookahead() {
            self.arrivals.queue.hide_after(Some(self.batch.begin_ns()));
        }
        Ok(())
    }

    /// Distributes the budget, preempts, adds loaded requests, and admits.
    fn decide(&mut self, now: &mut Now<'_>) -> Answer<Vec<MoveId>> {
        let mut preempted = false;
        let reservation = loop {
            match self.batch.begin(now.store, now.ns)? {
                Reservation::Ready => break Vec::new(),
                Reservation::Pending(moves) => break moves,
                Reservation::Refused => self.preempt_last(now)?,
            }
            preempted = true;
        };
        self.issue(now, None)?;
        self.join_arrived(now)?;
        self.abandon_loaded(now)?;
        while self.batch.budget_left() > 0 {
            let mut loaded = self.loads.loaded.iter();
            let Some(at) = loaded.position(|&id| !self.is_aborted(self.loads[id].slot)) else {
                break;
            };
            let Some(id) = self.loads.loaded.remove(at) else {
                break;
            };
            self.left_queue(self.loads[id].slot, now.ns);
            self.join_late(now, id)?;
        }
        if !preempted {
            self.admit(now)?;
        }
        Ok(reservation)
    }

    /// Admits from the queue until it is empty, its head is refused, or slots or tokens run out.
    fn admit(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let mut slots = self.slots();
        while !self.arrivals.refused && slots > 0 && self.batch.budget_left() > 0 {
            let held = self.held_back(now)?;
            let (config, block) = (&self.config, self.config.block_size_tokens);
            let stays = held.map(|held| {
                // The queue calls `stays` for each candidate in the order in which they were held back.
                let mut held = held.into_iter().peekable();
                move |s: &Request| held.next_if_eq(&s.arrival.request).is_some()
            });
            let head = self.arrivals.queue.head(&self.requests, stays, |s| {
                let limit = config.matchable_blocks(s.prefill_target_tokens());
                let found = now.store.find(s.arrival.request, limit, now.ns)?.0;
                Ok(u64::from(found) * block)
            })?;
            if self.asks_first(head) {
                self.arrivals.refused = !self.take(now)?;
            } else {
                let Some(slot) = head else { break };
                if self.waits_for_another(now, slot)? {
                    break;
                }
                let asked = self.ask(now, slot)?;
                self.arrivals.refused = asked == Asked::NoCapacity;
                if asked == Asked::NoTokens {
                    break;
                }
            }
            slots -= 1;
        }
        Ok(())
    }

    /// Sends the last request that joined back to the queue.
    fn preempt_last(&mut self, now: &mut Now<'_>) -> Answer<()> {
        if let Some(&leaving) = self.running.leaving.last() {
            // it has ended, but the scheduler does not know that yet
            let joined = |slot: Slot| self.requests[slot].scheduling.joined;
            let last = self.running.slots.last();
            if last.is_none_or(|&last| joined(leaving) > joined(last)) {
                if self.config.scheduling.async_scheduling == AsyncScheduling::StopToken {
                    self.batch.pop_last();
                }
                self.running.leaving.pop();
                return self.release_leaving(now, leaving);
            }
        }
        let popped = self.batch.pop_last();
        let popped = popped.expect("an empty batch needs no blocks");
        let slot = popped.id;
        self.running.remove(slot);
        self.requests[slot].generated.last_token_ns = popped.last_token_ns;
        now.store.release(popped.lease, now.ns)?;
        self.arrivals.refused = false;
        self.arrivals.queue.push_front(slot);
        self.preempted(now, slot, popped.computed);
        Ok(())
    }

    /// Releases the blocks of a finished request, and removes the request.
    fn release_leaving(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        self.release(now, slot)?;
        self.requests.free(slot);
        Ok(())
    }

    /// Releases a request's blocks; blocks that the cache does not admit are discarded.
    pub(super) fn release(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        let s = &self.requests[slot];
        let (request, lease): (u32, LeaseId) = (s.arrival.request, s.lease);
        let depth = now.store.depth(lease)?;
        now.store.release(lease, now.ns)?;
        self.arrivals.refused = false;
        if self.config.reuse.discard_on_finish {
            now.store.discard(request, 0, depth)?;
        } else if let Some(admission) = &mut self.plugins.admission {
            let kept = admission.kept_blocks(&Finished {
                request,
                turn: s.arrival.turn,
                in_session: s.arrival.session >= 0,
                prompt_tokens: s.arrival.prompt_tokens,
                output_tokens: s.arrival.output_tokens,
                cached_tokens: s.cached.tokens,
                block_size_tokens: self.config.block_size_tokens,
                blocks: depth,
            })?;
            now.store.discard(request, kept, depth)?;
        } else if self.config.reuse.admits_prompts_only {
            let whole = s.arrival.prompt_tokens / self.config.block_size_tokens;
            now.store
                .discard(request, depth.min(fit::<u32>(whole)), depth)?;
        }
        Ok(())
    }
}

//! Requests that their clients abort, in any state. A waiting request leaves at once, a running request at the end of
//! its step, a loading request when its KV has arrived. A handed-over request leaves at the end of its first step on
//! the decode machine.

use super::{Now, Replica, Slot};
use crate::digest::Record;
use crate::machine::rows::{Ended, EventKind};
use crate::store::Answer;

impl Replica {
    /// Marks an open request as aborted by its client and returns its slot. Returns `None` if the request is not here,
    /// has ended, is aborted already, or was handed over.
    ///
    /// Cost: linear in the number of slots.
    pub fn client_leaves(&mut self, request: u32) -> Option<Slot> {
        let leaves = |s: &super::Request| {
            s.arrival.request == request && !(s.is_closed || s.handover.sent_on || s.pending_aborts)
        };
        let mut slots = self.requests.iter_mut().zip(0..);
        let (s, slot) = slots.find(|(s, _)| leaves(s))?;
        s.pending_aborts = true;
        Some(slot)
    }

    /// True if the client of an open request has aborted it.
    pub fn is_aborted(&self, slot: Slot) -> bool {
        let s = &self.requests[slot];
        s.pending_aborts && !s.is_closed
    }

    /// Aborts a request whose client has left.
    pub fn abort(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        self.catch_up(now, now.ns)?;
        if self.arrivals.queue.remove(slot) {
            self.leave(now, slot);
            return self.resume(now, now.ns);
        }
        self.leaves_at_boundary(now, slot)
    }

    /// Aborts a request whose prompt another machine has computed or computes; returns true if the request is known
    /// here.
    ///
    /// A request that does not run yet leaves at the end of its first step.
    pub(super) fn abort_handed_over(&mut self, now: &mut Now<'_>, request: u32) -> Answer<bool> {
        if let Some(slot) = self.client_leaves(request) {
            if self.running.contains(slot) {
                self.catch_up(now, now.ns)?;
                self.leaves_at_boundary(now, slot)?;
            }
            return Ok(true);
        }
        Ok(self.handover.target.client_leaves(request))
    }

    fn leaves_at_boundary(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        self.note_abort(slot);
        if self.running.stepping {
            self.running.boundary_ns = Some(self.batch.interrupt(now.store, now.ns)?);
            return Ok(());
        }
        self.wake(now, now.ns)
    }

    /// Notes an aborted request that leaves at the end of its step.
    pub(super) fn note_abort(&mut self, slot: Slot) {
        let s = &self.requests[slot];
        if s.pending_aborts {
            self.arrivals.pending_aborts.note(slot, s.arrival.request);
        }
    }

    /// True if an aborted request leaves at the end of the next step.
    pub(super) fn leaves_next(&self) -> bool {
        let leaves = |&(slot, request): &(Slot, u32)| {
            self.requests[slot].arrival.request == request && self.running.contains(slot)
        };
        self.arrivals.pending_aborts.0.iter().any(leaves)
    }

    /// Removes aborted requests from the batch and the queue, and frees their blocks.
    pub(super) fn release_aborted(&mut self, now: &mut Now<'_>) -> Answer<()> {
        for (slot, request) in std::mem::take(&mut self.arrivals.pending_aborts.0) {
            let s = &self.requests[slot];
            if s.arrival.request != request || s.is_closed || s.handover.sent_on {
                continue;
            }
            if self.running.contains(slot) {
                self.batch.take_out(slot);
                self.running.remove(slot);
                self.abandon(now, slot)?;
            } else if self.arrivals.queue.remove(slot) {
                // it was preempted in between
                self.arrivals.refused = false;
                self.leave(now, slot);
            } else {
                self.arrivals.pending_aborts.note(slot, request);
            }
        }
        Ok(())
    }

    /// Frees what was loaded for aborted requests, once all of it has arrived.
    pub(super) fn abandon_loaded(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let mut at = 0;
        while let Some(&id) = self.loads.loaded.get(at) {
            let slot = self.loads[id].slot;
            let is_aborted = self.is_aborted(slot);
            if !is_aborted || self.still_comes(id) {
                if is_aborted {
                    self.load_all(id, now.ns);
                }
                at += 1;
                continue;
            }
            self.loads.loaded.remove(at);
            self.loading_over(id);
            self.abandon(now, slot)?;
        }
        Ok(())
    }

    /// Frees the blocks of an aborted request and ends the request.
    fn abandon(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        self.release(now, slot)?;
        self.leave(now, slot);
        Ok(())
    }

    /// Ends an aborted request that holds no blocks, and frees its slot.
    pub fn leave(&mut self, now: &mut Now<'_>, slot: Slot) {
        self.left(now, slot, Ended::Aborted);
        self.arrivals.pending_aborts.forget(slot);
        self.requests.free(slot);
    }

    /// Ends a request without its last token; its turn leaves no KV for the session's next turn.
    pub(super) fn left(&mut self, now: &mut Now<'_>, slot: Slot, ended: Ended) {
        let s = &mut self.requests[slot];
        debug_assert!(!s.is_closed, "I1: a request leaves once");
        s.is_closed = true;
        let (arrival, handed_over) = (s.arrival, s.handover.prefill_machine.is_some());
        let prompt_is_open = s.generated.first_token_ns.is_none();
        let records = now.store.records_mut();
        records.note(Record::Finish as u8, now.ns, u64::from(arrival.request), 0);
        self.log(EventKind::Finish, slot, now.ns);
        self.prefill_load.remove();
        if handed_over {
            self.prefill_load.take_out(arrival.prompt_tokens, 0);
        } else if prompt_is_open {
            let expected_tokens = arrival.expected_prefill_tokens;
            self.prefill_load
                .take_out(arrival.prompt_tokens, expected_tokens);
        }
        let s = &self.requests[slot];
        let machine = self.config.machine;
        self.reports.rows.ended(s, machine, ended, now.ns);
        self.note_closed(arrival.request, now.ns);
    }
}

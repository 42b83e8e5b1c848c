//! Requests that their clients give up, wherever they are: what waits leaves at once, what runs at the end of its
//! step, what loads when its KV has come, what is handed over at the end of its first step there.

use super::{Now, Place, Replica};
use crate::digest::Record;
use crate::machine::rows::EventKind;
use crate::store::Answer;

/// Requests that were given up and have not left: their places, and their numbers, since places are used again.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Vec<(Place, u32)>);

impl GivenUp {
    fn note(&mut self, place: Place, request: u32) {
        if !self.0.contains(&(place, request)) {
            self.0.push((place, request));
        }
    }

    /// Takes a place out that is free from now on.
    fn forget(&mut self, place: Place) {
        self.0.retain(|&(other, _)| other != place);
    }
}

impl Replica {
    /// The place of an open request whose client gives it up now; `None` where it is not here, or nobody is left to.
    ///
    /// Cost: a look at each place.
    pub fn client_leaves(&mut self, request: u32) -> Option<Place> {
        let leaves = |s: &super::Request| {
            s.arrival.request == request && !(s.is_closed || s.sent_on || s.given_up)
        };
        let mut places = self.requests.iter_mut().zip(0..);
        let (s, place) = places.find(|(s, _)| leaves(s))?;
        s.given_up = true;
        Some(place)
    }

    /// Whether the client of an open request has given it up.
    pub fn is_given_up(&self, place: Place) -> bool {
        let s = &self.requests[place];
        s.given_up && !s.is_closed
    }

    /// Lets a request go that its client has given up.
    pub fn give_up(&mut self, now: &mut Now<'_>, place: Place) -> Answer<()> {
        self.catch_up(now, now.ns)?;
        if self.arrivals.queue.remove(place) {
            self.leave(now, place);
            return self.go_on(now, now.ns);
        }
        self.leaves_at_boundary(now, place)
    }

    /// Lets a request go whose prompt another machine has computed, or computes; whether it is known here.
    ///
    /// What does not run yet leaves at the end of its first step.
    pub(super) fn give_up_handed_over(&mut self, now: &mut Now<'_>, request: u32) -> Answer<bool> {
        if let Some(place) = self.client_leaves(request) {
            if self.running.contains(place) {
                self.catch_up(now, now.ns)?;
                self.leaves_at_boundary(now, place)?;
            }
            return Ok(true);
        }
        Ok(self.handover.reception.client_leaves(request))
    }

    fn leaves_at_boundary(&mut self, now: &mut Now<'_>, place: Place) -> Answer<()> {
        self.note_given_up(place);
        if self.running.stepping {
            self.running.boundary_ns = Some(self.batch.interrupt(now.store, now.ns)?);
            return Ok(());
        }
        self.wake(now, now.ns)
    }

    /// Notes a request that leaves at the end of its step, where it was given up.
    pub(super) fn note_given_up(&mut self, place: Place) {
        let s = &self.requests[place];
        if s.given_up {
            self.arrivals.given_up.note(place, s.arrival.request);
        }
    }

    /// Whether a request is to leave at the end of the next step.
    pub(super) fn leaves_next(&self) -> bool {
        let leaves = |&(place, request): &(Place, u32)| {
            self.requests[place].arrival.request == request && self.running.contains(place)
        };
        self.arrivals.given_up.0.iter().any(leaves)
    }

    /// Takes requests that were given up out of the batch and the queue, and frees their blocks.
    pub(super) fn let_go(&mut self, now: &mut Now<'_>) -> Answer<()> {
        for (place, request) in std::mem::take(&mut self.arrivals.given_up.0) {
            let s = &self.requests[place];
            if s.arrival.request != request || s.is_closed || s.sent_on {
                continue;
            }
            if self.running.contains(place) {
                self.batch.take_out(place);
                self.running.remove(place);
                self.abandon(now, place)?;
            } else if self.arrivals.queue.remove(place) {
                // it was preempted meanwhile
                self.arrivals.refused = false;
                self.leave(now, place);
            } else {
                self.arrivals.given_up.note(place, request);
            }
        }
        Ok(())
    }

    /// Frees what was loaded for requests that were given up meanwhile, once all of it has come.
    pub(super) fn abandon_loaded(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let mut at = 0;
        while let Some(&id) = self.loads.loaded.get(at) {
            let place = self.loads[id].place;
            let is_aborted = self.is_given_up(place);
            if !is_aborted || self.still_comes(id) {
                if is_aborted {
                    self.load_all(id, now.ns);
                }
                at += 1;
                continue;
            }
            self.loads.loaded.remove(at);
            self.loading_over(id);
            self.abandon(now, place)?;
        }
        Ok(())
    }

    /// Frees what a request holds that was given up, and ends it.
    fn abandon(&mut self, now: &mut Now<'_>, place: Place) -> Answer<()> {
        self.release(now, place)?;
        self.leave(now, place);
        Ok(())
    }

    /// Ends a request that was given up and holds nothing, and frees its place.
    pub fn leave(&mut self, now: &mut Now<'_>, place: Place) {
        self.aborted(now, place);
        self.arrivals.given_up.forget(place);
        self.requests.free(place);
    }

    /// Ends a request that its client has given up; its turn leaves nothing for the next one.
    pub(super) fn aborted(&mut self, now: &mut Now<'_>, place: Place) {
        let s = &mut self.requests[place];
        s.is_closed = true;
        let (arrival, handed_over) = (s.arrival, s.prefill_machine.is_some());
        let prompt_is_open = s.first_token_ns.is_none();
        let records = now.store.records_mut();
        records.note(Record::Finish as u8, now.ns, u64::from(arrival.request), 0);
        self.log(EventKind::Finish, place, now.ns);
        self.prefill_load.remove();
        if handed_over {
            self.prefill_load.take_out(arrival.prompt_tokens, 0);
        } else if prompt_is_open {
            let expected_tokens = arrival.expected_prefill_tokens;
            self.prefill_load
                .take_out(arrival.prompt_tokens, expected_tokens);
        }
        let s = &self.requests[place];
        self.reports.rows.finish(s, self.config.machine, None);
        self.note_closed(arrival.request, now.ns);
    }
}

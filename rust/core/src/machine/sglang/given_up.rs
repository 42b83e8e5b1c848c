//! Requests that their clients give up: what waits leaves at once, what has KV at the next boundary.

use super::super::Place;
use super::{Desk, SglangScheduler};
use crate::store::Answer;

impl SglangScheduler {
    /// Lets a request go; what has KV goes at the next boundary.
    pub(super) fn client_left(&mut self, desk: &mut Desk<'_>, place: Place) {
        if self.waiting.contains(&place) {
            self.waiting.retain(|&waiting| waiting != place);
            self.leave(desk, place);
        } else {
            self.someone_left = true;
        }
    }

    /// Frees the KV of requests that were given up: of those that run, of the last step's, and of the prompt that goes
    /// on, whose chunks are not kept. Those retracted meanwhile leave the queue.
    pub(super) fn let_go(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        if !std::mem::take(&mut self.someone_left) {
            return Ok(());
        }
        let launched = self.launched.iter().flat_map(|launched| &launched.0);
        let held = self.running.iter().chain(launched).chain(&self.chunked);
        let held: Vec<Place> = held
            .copied()
            .filter(|&p| desk.replica.is_given_up(p))
            .collect();
        for place in held {
            let s = &mut self.sequences[place];
            if !s.is_held {
                continue;
            }
            if self.chunked == Some(place) {
                self.chunked = None;
                desk.store.retract(s.request);
            } else {
                desk.store.finish(s.request, s.committed.min(s.known()))?;
            }
            s.is_held = false;
            self.held -= 1;
            self.leave(desk, place);
        }
        for place in self.waiting.clone() {
            if desk.replica.is_given_up(place) {
                self.waiting.retain(|&waiting| waiting != place);
                self.leave(desk, place);
            }
        }
        Ok(())
    }

    fn leave(&mut self, desk: &mut Desk<'_>, place: Place) {
        let s = &mut self.sequences[place];
        s.is_finished = true;
        desk.aborted(place);
        if s.steps_in_flight == 0 {
            desk.replica.requests.free(place);
        }
    }
}

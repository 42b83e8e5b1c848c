//! Requests that their clients abort: a waiting request leaves at once, a request with KV at the next boundary.

use super::super::Slot;
use super::{Desk, SglangScheduler};
use crate::store::Answer;

impl SglangScheduler {
    /// Frees the KV of aborted requests: of running requests, of the last step's requests, and of the chunked prompt,
    /// whose chunks are not kept. Aborted requests that were retracted in between leave the queue.
    pub(super) fn release_aborted(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        if !std::mem::take(&mut self.aborts_pending) {
            return Ok(());
        }
        let launched = self
            .steps
            .launched
            .iter()
            .flat_map(|launched| &launched.members);
        let held = self.running.iter().chain(launched).chain(&self.chunked);
        let held: Vec<Slot> = held
            .copied()
            .filter(|&p| desk.replica.is_aborted(p))
            .collect();
        for slot in held {
            let s = &mut self.sequences[slot];
            if !s.is_held {
                continue;
            }
            if self.chunked == Some(slot) {
                self.chunked = None;
                desk.store.retract(s.request);
            } else {
                self.config.finish(desk.store, s)?;
            }
            s.is_held = false;
            self.held -= 1;
            self.leave(desk, slot);
        }
        for slot in self.waiting.clone() {
            if desk.replica.is_aborted(slot) {
                self.waiting.retain(|&waiting| waiting != slot);
                self.drop_prefetch(desk, slot)?;
                self.leave(desk, slot);
            }
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, desk: &mut Desk<'_>, slot: Slot) {
        let s = &mut self.sequences[slot];
        s.is_finished = true;
        desk.aborted(slot);
        if s.steps_in_flight == 0 {
            desk.replica.requests.free(slot);
        }
    }
}

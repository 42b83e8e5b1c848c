//! Requests that their clients give up: what waits leaves at once, what runs at the next boundary.

use super::super::engine::Desk;
use super::super::Place;
use super::blocks::Blocks;
use super::VllmScheduler;
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Lets a request go; what runs goes at the next boundary.
    pub(super) fn client_left(&mut self, desk: &mut Desk<'_, B>, place: Place) -> Answer<()> {
        self.cut_stretch(desk)?;
        let sequence = self.sequences.get(place);
        if sequence.is_some_and(|s| self.waiting.remove(place, s)) {
            self.leave(desk, place);
        } else {
            self.someone_left = true;
        }
        Ok(())
    }

    /// Frees the blocks of running requests that were given up; steps in flight bring them no token. Those preempted
    /// meanwhile leave the queue.
    pub(super) fn let_go(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        if !std::mem::take(&mut self.someone_left) {
            return Ok(());
        }
        let is_given_up = |place: &Place| desk.replica.is_given_up(*place);
        let here = self.running.iter().copied().chain(self.waiting.iter());
        let given_up: Vec<Place> = here.filter(is_given_up).collect();
        for place in given_up {
            self.withdraw(desk.store, place, desk.now_ns)?;
            self.leave(desk, place);
        }
        Ok(())
    }

    fn leave(&mut self, desk: &mut Desk<'_, B>, place: Place) {
        desk.aborted(place);
        self.done(desk.replica, place);
    }
}

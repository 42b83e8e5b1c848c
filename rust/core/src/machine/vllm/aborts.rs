//! Requests that their clients abort: a waiting request leaves at once, a running request at the next boundary.

use super::super::engine::Desk;
use super::super::Slot;
use super::blocks::Blocks;
use super::VllmScheduler;
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Frees the blocks of aborted running requests; steps in flight bring them no token. Aborted requests that were
    /// preempted in between leave the queue.
    pub(super) fn release_aborted(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        if !std::mem::take(&mut self.aborts_pending) {
            return Ok(());
        }
        let is_aborted = |slot: &Slot| desk.replica.is_aborted(*slot);
        let queued = self.waiting.iter().chain(self.remote.holding.iter());
        let here = self.running.iter().copied().chain(queued);
        let pending_aborts: Vec<Slot> = here.filter(is_aborted).collect();
        for slot in pending_aborts {
            self.withdraw(desk.store, slot, desk.now_ns)?;
            self.leave(desk, slot);
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, desk: &mut Desk<'_, B>, slot: Slot) {
        desk.aborted(slot);
        self.done(desk.replica, slot);
    }
}

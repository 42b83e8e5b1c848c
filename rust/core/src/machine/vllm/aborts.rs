//! Requests that their clients abort: a waiting request leaves at once, a running request at the next boundary.

use super::super::engine::Desk;
use super::super::Slot;
use super::blocks::Blocks;
use super::VllmScheduler;
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Frees the blocks of requests in the order of their aborts, before the tokens of a step that ends are handed over
    /// (`_process_aborts_queue`); steps in flight bring them no token.
    pub(super) fn release_aborted(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        let aborted = std::mem::take(&mut self.aborted);
        if aborted.is_empty() {
            return Ok(());
        }
        let queued = self.waiting.iter().chain(self.remote.holding.iter());
        let here: Vec<Slot> = self.running.iter().copied().chain(queued).collect();
        for slot in aborted {
            if here.contains(&slot) && desk.replica.is_aborted(slot) {
                self.withdraw(desk.store, slot, desk.now_ns)?;
                self.leave(desk, slot);
            }
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, desk: &mut Desk<'_, B>, slot: Slot) {
        desk.aborted(slot);
        self.done(desk.replica, slot);
    }
}

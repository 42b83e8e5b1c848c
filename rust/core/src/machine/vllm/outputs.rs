//! The tokens that a step's end brings, in the order in which its requests were scheduled.

use super::super::engine::Desk;
use super::super::{Replica, Slot};
use super::blocks::Blocks;
use super::step::{Scheduled, Step};
use super::VllmScheduler;
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Ends a step: a request with all its known tokens computed gets one more; the last token finishes its request.
    pub(super) fn step_ended(&mut self, desk: &mut Desk<'_, B>, step: &Step) -> Answer<()> {
        self.release_written(desk.store, step, desk.now_ns)?;
        for &part in &step.scheduled {
            self.part_ended(desk, part)?;
        }
        if let Some(log) = &mut self.log {
            log.counts.end_ns = desk.now_ns;
        }
        Ok(())
    }

    fn part_ended(&mut self, desk: &mut Desk<'_, B>, part: Scheduled) -> Answer<()> {
        let s = &mut self.sequences[part.slot];
        s.flight.tokens -= part.tokens;
        let stale = s.flight.stale > 0;
        if stale {
            s.flight.stale -= part.tokens;
        }
        if s.is_done {
            if s.flight.tokens == 0 {
                desk.replica.requests.free(part.slot);
            }
            return Ok(());
        }
        // a prompt that was preempted while its last step ran has no blocks to be read: it is computed again
        if !part.brings_token || (stale && self.config.is_producer) {
            return Ok(());
        }
        self.fruitless = 0;
        s.known += 1;
        if self.config.async_scheduling.has_lookahead() && !stale {
            s.flight.placeholders -= 1;
            if s.is_running {
                s.key_step(
                    &self.config,
                    desk.store,
                    (s.computed - s.flight.tokens).min(s.known),
                )?;
            }
        }
        let done = s.known == s.total;
        if done && desk.replica.hands_over(part.slot) {
            self.hand_over(desk, part.slot);
            return Ok(());
        }
        let before_ns = s.last_token_ns.replace(desk.now_ns);
        desk.token(part.slot, before_ns);
        if done {
            self.finish(desk, part.slot)?;
        }
        Ok(())
    }

    /// Finishes a request that has generated its last token.
    fn finish(&mut self, desk: &mut Desk<'_, B>, slot: Slot) -> Answer<()> {
        self.withdraw(desk.store, slot, desk.now_ns)?;
        desk.finished(slot, &mut self.log);
        self.done(desk.replica, slot);
        Ok(())
    }

    /// Removes a request from the queue or the running requests; its blocks are free at once.
    pub(super) fn withdraw(&mut self, store: &mut B, slot: Slot, now_ns: u64) -> Answer<()> {
        if std::mem::take(&mut self.sequences[slot].is_running) {
            self.release_ended(store, slot, now_ns)?;
            self.running.retain(|&running| running != slot);
            return Ok(());
        }
        self.end_waiting(store, slot, now_ns)
    }

    /// Records that a request has ended; its slot is free once no step in flight contains it.
    pub(super) fn done(&mut self, desk: &mut Replica, slot: Slot) {
        let s = &mut self.sequences[slot];
        s.is_done = true;
        if s.flight.tokens == 0 {
            desk.requests.free(slot);
        }
    }
}

//! The tokens that a step's end brings, in the order in which its requests were scheduled.

use super::super::engine::Desk;
use super::super::{Place, Replica};
use super::blocks::Blocks;
use super::step::{Scheduled, Step};
use super::VllmScheduler;
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Ends a step: who has all its known tokens computed gets one more; the last one ends its request.
    pub(super) fn step_ended(&mut self, desk: &mut Desk<'_, B>, step: &Step) -> Answer<()> {
        for &part in &step.scheduled {
            self.part_ended(desk, part)?;
        }
        if let Some(log) = &mut self.log {
            log.counts.end_ns = desk.now_ns;
        }
        Ok(())
    }

    fn part_ended(&mut self, desk: &mut Desk<'_, B>, part: Scheduled) -> Answer<()> {
        let s = &mut self.sequences[part.place];
        s.in_flight -= part.tokens;
        let stale = s.stale > 0;
        if stale {
            s.stale -= part.tokens;
        }
        if s.is_done {
            if s.in_flight == 0 {
                desk.replica.requests.free(part.place);
            }
            return Ok(());
        }
        if !part.brings_token {
            return Ok(());
        }
        self.fruitless = 0;
        s.known += 1;
        if self.config.async_scheduling.looks_ahead() && !stale {
            s.placeholders -= 1;
            if s.is_running {
                s.key_step(
                    &self.config,
                    desk.store,
                    (s.computed - s.in_flight).min(s.known),
                )?;
            }
        }
        let done = s.known == s.total;
        let before_ns = s.last_token_ns.replace(desk.now_ns);
        desk.token(part.place, before_ns);
        if done {
            self.finish(desk, part.place)?;
        }
        Ok(())
    }

    /// Ends a request whose last token is out.
    fn finish(&mut self, desk: &mut Desk<'_, B>, place: Place) -> Answer<()> {
        self.withdraw(desk.store, place, desk.now_ns)?;
        desk.finished(place, &mut self.log);
        self.done(desk.replica, place);
        Ok(())
    }

    /// Takes a request from wherever it is; its blocks are free at once.
    pub(super) fn withdraw(&mut self, store: &mut B, place: Place, now_ns: u64) -> Answer<()> {
        let s = &mut self.sequences[place];
        if std::mem::take(&mut s.is_running) {
            store.release(s.lease, now_ns)?;
            self.running.retain(|&running| running != place);
        } else {
            self.waiting.remove(place, s);
        }
        Ok(())
    }

    /// Notes that a request has ended; its place is free once no step in flight names it.
    pub(super) fn done(&mut self, desk: &mut Replica, place: Place) {
        let s = &mut self.sequences[place];
        s.is_done = true;
        if s.in_flight == 0 {
            desk.requests.free(place);
        }
    }
}

//! The tokens that a step's end brings, in the order of its requests.

use super::super::Slot;
use super::step::Step;
use super::{Desk, SglangScheduler};
use crate::store::Answer;

impl SglangScheduler {
    /// Ends a step: a request with a computed prompt gets a token, and its computed blocks enter the tree.
    pub(super) fn step_ended(&mut self, desk: &mut Desk<'_>, step: &Step) -> Answer<()> {
        for &(slot, decodes) in &step.members {
            let s = &mut self.sequences[slot];
            s.steps_in_flight -= 1;
            if !decodes {
                self.charge_stall(desk, slot, step.stall_ns);
            }
            let s = &mut self.sequences[slot];
            if s.is_finished || s.is_retracted {
                // a surplus token, or a token whose KV is gone: it is generated again
            } else if s.extend.middle_chunks > 0 {
                s.extend.middle_chunks -= 1;
            } else {
                self.token(desk, slot)?;
                let s = &mut self.sequences[slot];
                if step.computes_prompts && !decodes && !s.is_finished {
                    self.config.check_in(desk.store, s)?;
                    s.extend.prefix = s.extend.end;
                }
            }
            let s = &self.sequences[slot];
            if s.is_finished && s.steps_in_flight == 0 {
                desk.replica.requests.free(slot);
            }
        }
        if let Some(log) = &mut self.log {
            log.counts.end_ns = desk.now_ns;
        }
        Ok(())
    }

    fn token(&mut self, desk: &mut Desk<'_>, slot: Slot) -> Answer<()> {
        let s = &mut self.sequences[slot];
        s.out += 1;
        let before_ns = s.last_token_ns.replace(desk.now_ns);
        desk.token(slot, before_ns);
        let s = &mut self.sequences[slot];
        if s.out < s.max_new {
            return Ok(());
        }
        s.is_finished = true;
        s.is_held = false;
        self.held -= 1;
        self.config.finish(desk.store, s)?;
        desk.finished(slot, &mut self.log);
        Ok(())
    }
}

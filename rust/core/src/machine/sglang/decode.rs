//! A step that brings the running requests a token each, and retraction if blocks run out.

use std::cmp::Reverse;

use super::super::{AsyncScheduling, Replica, Slot};
use super::new_token_ratio::RETRACT_DECODE_STEPS;
use super::step::Step;
use super::{Desk, SglangScheduler};
use crate::engines::radix_store::{Prefix, RadixStore};
use crate::store::Answer;

impl SglangScheduler {
    /// Composes a decode step; `None` if no request decodes now.
    pub(super) fn decode_step(&mut self, desk: &mut Desk<'_>) -> Answer<Option<Step>> {
        let before = self.batch_size();
        self.lingering = 0;
        let finishing = self.leave_finishing();
        if self.running.is_empty() {
            self.is_full = false;
            return Ok(None);
        }
        if self.can_decode(desk.store, &self.running, desk.now_ns) {
            self.ratio.decays();
        } else if finishing {
            // the requests that the step in flight finishes will release memory
            return Ok(None);
        } else {
            self.retract(desk)?;
        }
        self.is_full &= self.batch_size() == before;
        if self.running.is_empty() {
            return Ok(None);
        }
        let mut step = Step::default();
        let running = std::mem::take(&mut self.running);
        self.take_decodes(desk.replica, desk.store, &running, &mut step, desk.now_ns)?;
        self.running = running;
        Ok(Some(step))
    }

    /// Removes the running requests that the step in flight is known to finish; returns true if there are any.
    pub(super) fn leave_finishing(&mut self) -> bool {
        if self.config.async_scheduling != AsyncScheduling::Length {
            return false;
        }
        let (before, sequences) = (self.running.len(), &self.sequences);
        self.running.retain(|&slot| {
            let s = &sequences[slot];
            s.steps_in_flight == 0 || !s.ends_next()
        });
        let any = self.running.len() < before;
        self.is_full &= !any;
        any
    }

    /// True if each of the given requests can have one more token, after evicting what may be evicted.
    pub(super) fn can_decode(&self, store: &mut RadixStore, slots: &[Slot], now_ns: u64) -> bool {
        let page = self.config.page_size;
        let full = |&&slot: &&Slot| self.sequences[slot].committed % page == 0;
        let tokens = slots.iter().filter(full).count() as u64 * page;
        store.evict_until_free(tokens, now_ns);
        store.free_tokens() >= tokens
    }

    /// Allocates a token for each of the given requests, and adds them to the step.
    pub(super) fn take_decodes(
        &mut self,
        desk: &Replica,
        store: &mut RadixStore,
        slots: &[Slot],
        step: &mut Step,
        now_ns: u64,
    ) -> Answer<()> {
        debug_assert!(desk.config.scheduling.max_num_seqs >= slots.len() as u64);
        store.evict_until_free(slots.len() as u64 * self.config.page_size, now_ns);
        for &slot in slots {
            let s = &mut self.sequences[slot];
            step.shape.add_decode(s.committed);
            s.committed += 1;
            s.steps_in_flight += 1;
            store.grow(s.request, s.committed)?;
            step.add(slot, true);
        }
        Ok(())
    }

    /// Retracts running requests until the others can decode: the shortest answers first, and among these the longest
    /// prompts.
    fn retract(&mut self, desk: &mut Desk<'_>) -> Answer<()> {
        let queued = self.waiting.len();
        let mut kept = std::mem::take(&mut self.running);
        let unchanged = kept.clone();
        kept.sort_by_key(|&slot| {
            let s = &self.sequences[slot];
            (Reverse(s.out), s.prompt)
        });
        let mut is_first = true;
        while !kept.is_empty() && (is_first || !self.can_decode(desk.store, &kept, desk.now_ns)) {
            if kept.len() == 1 && std::mem::take(&mut is_first) {
                // a chunked prompt holds the rest of the memory: the last request waits here, while SGLang aborts it
                if self.can_decode(desk.store, &kept, desk.now_ns) {
                    break;
                }
            }
            is_first = false;
            if let Some(slot) = kept.pop() {
                self.take_back(desk, slot, kept.len() as u64);
                self.waits(slot);
            }
        }
        self.running = if kept.len() == unchanged.len() {
            unchanged
        } else {
            kept
        };
        let each = || self.running.iter().map(|&slot| &self.sequences[slot]);
        let (out, answers) = (each().map(|s| s.out).sum(), each().map(|s| s.max_new).sum());
        let requests = self.running.len() as u64;
        self.ratio.retracted(requests, out, answers);
        for at in queued..self.waiting.len() {
            self.ask_anew(desk, self.waiting[at])?;
        }
        Ok(())
    }

    /// Frees the KV of a running request, which is no longer one; `others` requests continue.
    pub(super) fn take_back(&mut self, desk: &mut Desk<'_>, slot: Slot, others: u64) {
        let s = &mut self.sequences[slot];
        let computed = s.prompt + s.out.saturating_sub(1);
        desk.store.retract(s.request);
        (s.is_held, s.is_retracted) = (false, true);
        s.found = Prefix::default();
        (
            s.extend.prefix,
            s.extend.end,
            s.committed,
            s.extend.middle_chunks,
        ) = (0, 0, 0, 0);
        self.held -= 1;
        desk.store
            .evict_until_free(others * RETRACT_DECODE_STEPS, desk.now_ns);
        desk.preempted(slot, computed, &mut self.log);
    }
}

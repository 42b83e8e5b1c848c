//! Admission in queue order while budget, slots and blocks last; no request passes the first one.

use super::super::engine::Desk;
use super::super::engine_notes::Cached;
use super::super::Slot;
use super::blocks::Blocks;
use super::running::Composition;
use super::VllmScheduler;
use crate::convert::fit;
use crate::store::newcomer::{Entry, Newcomer};
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Admits from the queue, except in a step in which a request was preempted.
    pub(super) fn schedule_waiting(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
    ) -> Answer<()> {
        self.refused = false;
        while !step.preempted && !self.refused && self.has_free_seqs() && step.budget > 0 {
            let Some(slot) = self.waiting.first() else {
                break;
            };
            match self.admit(desk, step, slot)? {
                Entry::Admitted { .. } => (),
                // the next step may admit it, though nothing else changes
                Entry::NotYet => break,
                Entry::NoCapacity | Entry::NoTokens => self.refused = true,
            }
        }
        Ok(())
    }

    /// True if another request may run.
    pub(super) fn has_free_seqs(&self) -> bool {
        (self.running.len() as u64) < self.config.limits.max_num_active_seqs
    }

    /// Admits a waiting request with its cached prefix; a refusal changes nothing.
    fn admit(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
        slot: Slot,
    ) -> Answer<Entry> {
        let config = &self.config;
        let s = &mut self.sequences[slot];
        let one_left = s.known - 1;
        let matchable = match config.cache_enabled {
            true => (s.known - 1) / config.block_size_tokens,
            false => 0,
        };
        let asked = Newcomer {
            request: s.request,
            prompt_tokens: s.prompt,
            known_tokens: s.known,
            least_cached_tokens: if step.defers_prefills { one_left } else { 0 },
            matchable_blocks: fit::<u32>(matchable),
            step_tokens: step.cap.min(step.budget),
            chunk_tokens: config.chunk_tokens(),
            kept_blocks: match self.running.is_empty() {
                true => 0,
                false => config.watermark_blocks,
            },
            whole: config.reserve_full_isl,
            steps_in_flight: config.steps_in_flight(),
        };
        let entry = desk.store.admit(&asked, config, desk.now_ns)?;
        let Entry::Admitted {
            lease,
            hit_blocks,
            reserved_tokens,
        } = entry
        else {
            return Ok(entry);
        };
        let cached = u64::from(hit_blocks) * config.block_size_tokens;
        let tokens = reserved_tokens - cached;
        step.has_prefill |= cached < one_left;
        self.waiting.remove(slot, s);
        (s.held.lease, s.held.blocks) = (lease, config.blocks(reserved_tokens));
        (s.held.keyed, s.computed) = (u64::from(hit_blocks), cached);
        (s.chunk, s.is_running) = (tokens, true);
        s.key_step(config, desk.store, reserved_tokens.min(s.known))?;
        step.budget -= tokens;
        step.slots.push(slot);
        self.running.push(slot);
        let cached = Cached {
            lower_blocks: 0,
            blocks: hit_blocks,
            tokens: cached,
            is_first: !std::mem::replace(&mut s.was_admitted, true),
        };
        desk.admitted(slot, cached, &mut self.log);
        Ok(entry)
    }
}

//! Admission in queue order while budget, slots and blocks last. Requests that hold loaded blocks come first; a request
//! that waits for copies lets others pass, one that lacks blocks none.

use super::super::engine::Desk;
use super::super::engine_notes::Cached;
use super::super::Slot;
use super::blocks::{Blocks, Resumed};
use super::running::Composition;
use super::sequence::Load;
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
        if step.preempted {
            return Ok(());
        }
        self.schedule_loaded(desk, step)?;
        let mut passed = None;
        while !self.refused && self.has_free_seqs() && step.budget > 0 {
            let next = match passed {
                Some(slot) => self.waiting.after(slot, &self.sequences[slot]),
                None => self.waiting.first(),
            };
            let Some(slot) = next else {
                break;
            };
            match self.admit(desk, step, slot)? {
                Entry::Admitted { .. } | Entry::Brings { .. } | Entry::Loads { .. } => (),
                // the next step may admit it, though nothing else changes
                Entry::NotYet => break,
                Entry::Later => {
                    self.sequences[slot].held.is_passed = true;
                    passed = Some(slot);
                }
                Entry::NoCapacity | Entry::NoTokens => self.refused = true,
            }
        }
        Ok(())
    }

    /// Admits requests whose load has ended.
    fn schedule_loaded(&mut self, desk: &mut Desk<'_, B>, step: &mut Composition) -> Answer<()> {
        if self.remote.holding.is_empty() {
            return Ok(());
        }
        let holding: Vec<Slot> = self.remote.holding.iter().collect();
        for slot in holding {
            if self.refused || !self.has_free_seqs() || step.budget == 0 {
                break;
            }
            if self.sequences[slot].held.load != Load::Runs {
                self.admit_loaded(desk, step, slot)?;
            }
        }
        Ok(())
    }

    /// True if another request may run.
    pub(super) fn has_free_seqs(&self) -> bool {
        (self.running.len() as u64) < self.config.limits.max_num_active_seqs
    }

    /// Free blocks that an admission must leave.
    fn kept_blocks(&self) -> u64 {
        match self.running.is_empty() {
            true => 0,
            false => self.config.watermark_blocks,
        }
    }

    /// Admits a waiting request with its cached prefix, or lets it wait for its load; a refusal changes nothing.
    fn admit(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
        slot: Slot,
    ) -> Answer<Entry> {
        let waits_for_loads = desk.store.connector().is_some() || self.config.is_consumer;
        let config = &self.config;
        let s = &self.sequences[slot];
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
            kept_blocks: self.kept_blocks(),
            whole: config.reserve_full_isl,
            is_handed_over: s.held.incoming.is_some(),
            claimed_blocks: match waits_for_loads {
                true => self.claimed_blocks(desk.store),
                false => 0,
            },
            steps_in_flight: config.steps_in_flight(),
        };
        let entry = desk.store.admit(&asked, config, desk.now_ns)?;
        let s = &mut self.sequences[slot];
        match entry {
            Entry::Admitted {
                lease,
                hit_blocks,
                reserved_tokens,
            } => {
                let cached = u64::from(hit_blocks) * config.block_size_tokens;
                (s.held.lease, s.held.keyed) = (lease, u64::from(hit_blocks));
                (s.computed, s.held.load_from) = (cached, hit_blocks);
                s.held.found_tokens = cached;
                self.waiting.remove(slot, s);
                self.joins(desk, step, slot, reserved_tokens)?;
            }
            Entry::Brings {
                lease,
                found_tokens,
                in_pool_blocks,
                reserved_tokens,
            } => {
                (s.held.lease, s.held.keyed) = (lease, u64::from(in_pool_blocks));
                (s.held.brings, s.held.load_from) = (true, in_pool_blocks);
                s.computed = found_tokens.min(s.known - 1);
                s.held.found_tokens = found_tokens;
                self.waiting.remove(slot, s);
                self.joins(desk, step, slot, reserved_tokens)?;
            }
            Entry::Loads {
                lease,
                hit_tokens,
                in_pool_blocks,
            } => {
                (s.held.lease, s.held.blocks) = (lease, config.blocks(hit_tokens));
                (s.held.keyed, s.held.load_from) = (u64::from(in_pool_blocks), in_pool_blocks);
                (s.held.load, s.held.claims, s.held.is_passed) = (Load::Runs, true, true);
                (s.computed, s.held.found_tokens) = (hit_tokens, hit_tokens);
                self.waits_for_load(slot);
                self.loads(desk, slot);
            }
            _ => (),
        }
        Ok(entry)
    }

    /// Admits a request with its loaded blocks, which get their keys now; of a prompt found whole a token is computed.
    fn admit_loaded(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
        slot: Slot,
    ) -> Answer<()> {
        let (kept, config) = (self.kept_blocks(), &self.config);
        let s = &mut self.sequences[slot];
        if s.held.load == Load::Ended {
            s.held.load = Load::Keyed;
            s.key_step(config, desk.store, s.computed)?;
            s.computed = s.computed.min(s.known - 1);
        }
        if step.defers_prefills && s.computed < s.known - 1 {
            self.refused = true;
            return Ok(());
        }
        let tokens = (s.known - s.computed).min(step.cap).min(step.budget);
        let tokens = desk
            .store
            .chunk(s.held.lease, s.computed, s.known, tokens)?;
        let asked = Resumed {
            end: s.computed + tokens,
            kept_blocks: kept,
            now_ns: desk.now_ns,
        };
        if tokens == 0 || !desk.store.admit_loaded(s, asked, config)? {
            self.refused = true;
            return Ok(());
        }
        let end = asked.end;
        self.remote.holding.remove(slot, s);
        self.joins(desk, step, slot, end)
    }

    /// Adds an admitted request to the step, with blocks for its first `end` tokens.
    fn joins(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Composition,
        slot: Slot,
        end: u64,
    ) -> Answer<()> {
        let config = &self.config;
        let s = &mut self.sequences[slot];
        step.has_prefill |= s.computed < s.known - 1;
        (s.held.blocks, s.held.is_passed) = (config.blocks(end), false);
        (s.chunk, s.is_running) = (end - s.computed, true);
        s.held.claims |= end < s.known;
        let blocks = fit::<u32>(s.computed.div_ceil(config.block_size_tokens));
        let is_loaded = std::mem::take(&mut s.held.load) != Load::None;
        let is_first = !std::mem::replace(&mut s.was_admitted, true);
        let is_here = is_loaded && self.config.is_consumer;
        let cached = Cached {
            blocks,
            lower_blocks: blocks - s.held.load_from,
            tokens: s.computed,
            found_tokens: s.held.found_tokens,
            is_first,
        };
        debug_assert!(is_loaded || s.held.brings || cached.lower_blocks == 0);
        s.key_step(config, desk.store, end.min(s.known))?;
        step.budget -= s.chunk;
        step.slots.push(slot);
        self.running.push(slot);
        if is_here {
            desk.continues(slot, cached, &mut self.log);
        } else {
            desk.admitted(slot, cached, &mut self.log);
        }
        Ok(())
    }
}

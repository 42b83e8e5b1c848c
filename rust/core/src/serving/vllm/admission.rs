//! Who is admitted: the first of the queue while budget, places and blocks last; nobody passes it.

use super::super::{Place, Replica, MOST_TIERS};
use super::running::Composition;
use super::VllmScheduler;
use crate::batch::BatchStore;
use crate::engines::pool_store::PoolStore;
use crate::store::Answer;

impl VllmScheduler {
    /// Admits from the queue; nobody in a step in which somebody was preempted.
    pub(super) fn schedule_waiting(
        &mut self,
        desk: &mut Replica,
        store: &mut PoolStore,
        step: &mut Composition,
        now_ns: u64,
    ) -> Answer<()> {
        self.refused = false;
        while !step.preempted && !self.refused && self.has_places() && step.budget > 0 {
            let Some(place) = self.waiting.first() else {
                break;
            };
            self.refused = !self.admit(desk, store, step, place, now_ns)?;
        }
        Ok(())
    }

    /// Whether another request may run.
    pub(super) fn has_places(&self) -> bool {
        (self.running.len() as u64) < self.config.max_num_seqs
    }

    /// Admits a waiting request with what is cached of it; false, without a trace, where blocks are too few.
    fn admit(
        &mut self,
        desk: &mut Replica,
        store: &mut PoolStore,
        step: &mut Composition,
        place: Place,
        now_ns: u64,
    ) -> Answer<bool> {
        let config = &self.config;
        let s = &mut self.sequences[place as usize];
        let hits = if config.cache_enabled {
            let most = (s.known - 1) / config.block_size_tokens;
            store.peek(s.request, most as u32)
        } else {
            0
        };
        let cached = u64::from(hits) * config.block_size_tokens;
        let tokens = (s.known - cached).min(step.cap).min(step.budget);
        let kept = if self.running.is_empty() {
            0
        } else {
            config.watermark_blocks
        };
        let idle = u64::from(store.idle_hits(s.request, hits));
        let room = (store.spare_blocks() + u64::from(hits)).saturating_sub(idle + kept);
        let blocks = config.blocks(cached + tokens);
        if blocks > room || (config.reserve_full_isl && config.blocks(s.known) > room) {
            return Ok(false);
        }
        let lease = store.acquire(s.request, hits)?;
        store.reserve(&[(lease, blocks - u64::from(hits))], now_ns)?;
        self.waiting.remove(place, s);
        (s.lease, s.blocks, s.keyed) = (lease, blocks, u64::from(hits));
        (s.computed, s.chunk, s.is_running) = (cached, tokens, true);
        s.key_step(config, store, (cached + tokens).min(s.known))?;
        step.budget -= tokens;
        step.places.push(place);
        self.running.push(place);
        self.admitted(desk, store, place, hits, now_ns);
        Ok(true)
    }

    fn admitted(
        &mut self,
        desk: &mut Replica,
        store: &mut PoolStore,
        place: Place,
        hits: u32,
        now_ns: u64,
    ) {
        let s = &mut self.sequences[place as usize];
        let (cached, prompt) = (s.computed, s.prompt);
        let first = !std::mem::replace(&mut s.was_admitted, true);
        desk.admitted(store, place, hits, now_ns);
        desk.requests[place as usize].prefilling = true;
        if first {
            let mut from_blocks = [0; MOST_TIERS];
            from_blocks[0] = u64::from(hits);
            desk.first_admitted(place, &from_blocks, cached, now_ns);
            desk.prefill_starts(place, prompt - cached, now_ns);
        } else {
            desk.requests[place as usize].recomputed_tokens -= cached as i64;
        }
        let request = s.request;
        if let Some(log) = &mut self.log {
            log.admitted(request, cached, first);
        }
    }
}

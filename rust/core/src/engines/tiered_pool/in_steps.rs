//! LMCache's connector above its tiers: loads and saves are parts of the scheduler's steps.

use super::{prompt, TieredPool};
use crate::convert::fit;
use crate::engines::below::{Prompt, Site};
use crate::engines::lmcache_connector::{Part, StepPart};
use crate::ids::BlockRange;
use crate::store::connector::{Scheduled, StepCopies};
use crate::store::{Answer, LeaseBlocks, Order};

impl TieredPool {
    /// Tokens that LMCache has of a request with `known` full blocks, as its look-up found; `None` above other tiers.
    pub fn found_by_lmcache(&mut self, request: u32, known: u32, now_ns: u64) -> Option<u64> {
        let own = self.lmcache.as_mut()?;
        if let Some(found) = own.found_tokens(request) {
            return Some(found);
        }
        let outdated = own.outdated_pins(now_ns);
        self.below.in_use().release_keys(&outdated);
        let keys = self.pool.keys().clone();
        let known = Prompt {
            request,
            whole_blocks: known,
            chunk_blocks: self.below.chunk_blocks(),
            keys: &keys,
        };
        let pinned = self.below.in_steps()?.pin(known);
        own.looked_up(request, pinned);
        own.found_tokens(request)
    }

    /// Admits a request that LMCache has looked up: it takes blocks, and its step, up to `end` tokens, loads what
    /// was found behind the pool's hit.
    pub fn admit_above_lmcache(
        &mut self,
        wanted: LeaseBlocks,
        can_load: bool,
        end: u64,
        now_ns: u64,
    ) -> Answer<()> {
        self.take_blocks(&[wanted], now_ns)?;
        let request = self.pool.leases.admitted(wanted.lease)?.request;
        let known = end.min(self.tokens(request));
        let Some(own) = &mut self.lmcache else {
            return Ok(());
        };
        let to = own.loaded_tokens(request, known) / self.block_size_tokens;
        own.admitted(request, can_load);
        let range = BlockRange::new(self.pool.keyed(request), fit::<u32>(to));
        if can_load && range.end > range.start {
            let keys = prompt!(self, request).chunk_keys_of_blocks(range);
            let held = self.pool.blocks(request, range);
            self.pool.copies.read(keys, held, &[]);
            let orders = self.orders_of_steps();
            self.jobs.loads.extend(orders);
        }
        Ok(())
    }

    /// Takes orders that are parts of steps.
    fn orders_of_steps(&mut self) -> Vec<Order> {
        let orders = self.pool.copies.take_orders();
        if let Some(own) = &mut self.lmcache {
            own.sent(orders.iter().map(|order| order.id));
        }
        orders
    }

    /// Decides what a step loads and saves.
    pub(super) fn step_decided_by_lmcache(
        &mut self,
        parts: &[Scheduled],
        now_ns: u64,
    ) -> Answer<StepCopies> {
        self.now_ns = now_ns;
        let part = |scheduled: &Scheduled| -> Answer<Part> {
            let request = self.pool.leases.get(scheduled.lease)?.request;
            Ok(Part {
                request,
                before_tokens: scheduled.computed_tokens - scheduled.tokens,
                tokens: scheduled.tokens,
                known_tokens: scheduled.known_tokens,
                prompt_tokens: self.tokens(request),
            })
        };
        let parts = parts.iter().map(part).collect::<Answer<Vec<Part>>>()?;
        if let Some(own) = &mut self.lmcache {
            own.decided(parts);
        }
        Ok(StepCopies {
            first: std::mem::take(&mut self.jobs.loads),
            ..StepCopies::default()
        })
    }

    /// Releases the pins of a computed step and saves its chunks (`start_load_kv`, `wait_for_save`).
    pub(super) fn saves_of_step(&mut self, now_ns: u64) -> Vec<Order> {
        let Some(own) = &mut self.lmcache else {
            return Vec::new();
        };
        let step = own.computed();
        for part in step.iter().filter(|part| part.can_load) {
            self.below.in_use().release_keys(&part.pinned);
        }
        for part in &step {
            if !part.can_load {
                self.below.in_use().release_keys(&part.pinned);
            }
            self.save(part, now_ns);
        }
        self.orders_of_steps()
    }

    fn save(&mut self, StepPart { request, saves, .. }: &StepPart, now_ns: u64) {
        let prompt = prompt!(self, *request);
        let site = Site {
            pool: &mut self.pool,
            records: &mut self.records,
            now_ns,
        };
        let Some(tiers) = self.below.in_steps().filter(|_| !saves.is_empty()) else {
            return;
        };
        let sent = tiers.save(site, prompt, saves.clone());
        if !sent.is_empty() {
            let start = saves.start * prompt.chunk_blocks;
            let range = BlockRange::new(start, start + fit::<u32>(sent.len()));
            let blocks = self.pool.blocks(*request, range);
            self.pool.copies.write(sent, blocks, &[]);
        }
    }
}

//! vLLM's `OffloadingConnector`, scheduler side (0.33.0, `kv_connector/v1/offloading/scheduler.py`): the pool and its
//! tiers below vLLM's own scheduler.
//!
//! Copies are decided with a step and reported when one has ended; until then their keys and blocks are in use.

use std::collections::BTreeSet;

use super::{prompt, TieredPool, NOTHING};
use crate::convert::fit;
use crate::engines::below::{Prompt, Site};
use crate::engines::connector_jobs::Ended;
use crate::ids::BlockRange;
use crate::store::connector::{Connector, Ending, LookUp, Scheduled, StepCopies};
use crate::store::{Answer, LeaseId, MoveId, Order, GPU};

impl TieredPool {
    /// Returns true if no copy is in flight, none is to come of a request that decodes, and no request has ended since
    /// the last step.
    pub fn is_quiet(&self, request: u32) -> bool {
        if let Some(own) = &self.lmcache {
            return own.is_quiet(request);
        }
        self.jobs.open.is_empty() && self.jobs.ended.is_empty() && !self.offers_more(request)
    }

    /// Returns true if a request has ended since the last step.
    pub fn has_ended(&self) -> bool {
        !self.jobs.ended.is_empty()
    }

    /// Returns true if blocks of a request's prompt are still to be offered.
    fn offers_more(&self, request: u32) -> bool {
        self.to_offer[request as usize] != NOTHING
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.pool.free_blocks()
    }

    /// Returns how many of a request's first `limit` blocks the pool has, and how many of those are free.
    pub fn in_pool(&self, request: u32, limit: u32) -> (u32, u64) {
        self.pool.found_idle(request, limit)
    }

    /// Returns the keys of the free blocks in the order of allocation; `None` for a block without a key.
    pub fn free_queue(&self) -> Vec<Option<u64>> {
        self.pool.free_queue().collect()
    }

    /// Looks up the blocks behind the pool's, of a request with `known` full blocks.
    pub fn look_up(&self, request: u32, in_pool: u32, known: u32) -> LookUp {
        if self.jobs.of(request).next().is_some() {
            return LookUp::Later;
        }
        let known = Prompt {
            request,
            whole_blocks: known,
            chunk_blocks: self.below.chunk_blocks(),
            keys: self.pool.keys(),
        };
        let is_loading = |key| self.jobs.loading.contains(key);
        self.below.look_up(&self.pool, known, in_pool, &is_loading)
    }

    /// Decides the load of an admitted request's blocks behind those of the pool, up to `to`.
    pub fn load_later(&mut self, lease: LeaseId, to: u32, now_ns: u64) -> Answer<()> {
        let request = self.pool.leases.admitted(lease)?.request;
        let range = BlockRange::new(self.pool.keyed(request), to);
        let blocks = self.pool.blocks(request, range);
        let prompt = prompt!(self, request);
        let keys = prompt.chunk_keys_of_blocks(range);
        let site = Site {
            pool: &mut self.pool,
            records: &mut self.records,
            now_ns,
        };
        let after = self.below.load(site, prompt, range, &[]);
        self.below.in_use().hold(&keys);
        self.jobs.loading.hold(&keys);
        self.pool.copies.read(keys.clone(), blocks, &after);
        let before = self.to_offer[request as usize];
        self.to_offer[request as usize] = self.below.offers_after(before, to);
        let orders = self.pool.copies.take_orders();
        self.jobs.start(&orders, request, &keys);
        self.jobs.loads.extend(orders);
        Ok(())
    }

    /// Notes blocks that a request has been given, from a position in its table on.
    pub fn note_given(&mut self, request: u32, from: u64) {
        if !(self.jobs.fenced.is_empty() && self.jobs.ended.is_empty()) {
            let blocks = BlockRange::new(fit::<u32>(from), u32::MAX);
            self.jobs.given.extend(self.pool.blocks(request, blocks));
        }
    }

    /// Offers a request's blocks, of which `keyed` are computed; returns the copies.
    fn offered(&mut self, request: u32, keyed: u32, now_ns: u64) -> Vec<Order> {
        if self.to_offer[request as usize] == NOTHING {
            return Vec::new();
        }
        self.offer(request, keyed, now_ns);
        let orders = self.pool.copies.take_orders();
        self.jobs.start(&orders, request, &[]);
        orders
    }
}

impl Connector for TieredPool {
    fn step_decided(&mut self, parts: &[Scheduled], now_ns: u64) -> Answer<StepCopies> {
        if self.lmcache.is_some() {
            return self.step_decided_by_lmcache(parts, now_ns);
        }
        let mut stores = Vec::new();
        for &Scheduled { lease, .. } in parts {
            let request = self.pool.leases.get(lease)?.request;
            stores.extend(self.offered(request, self.pool.keyed(request), now_ns));
        }
        for Ended { request, keyed } in std::mem::take(&mut self.jobs.ended) {
            let last = self.offered(request, keyed, now_ns);
            self.jobs.fenced.extend(last.iter().map(|order| order.id));
            stores.extend(last);
            self.to_offer[request as usize] = NOTHING;
            self.pool.forget_table(request);
            self.below.finish(prompt!(self, request));
        }
        let mut readers = BTreeSet::new();
        for block in std::mem::take(&mut self.jobs.given) {
            self.pool.copies.add_readers(block, &mut readers);
        }
        let mut flushed = std::mem::take(&mut self.jobs.flushed);
        flushed.extend(readers.intersection(&self.jobs.fenced));
        Ok(StepCopies {
            stores,
            loads: std::mem::take(&mut self.jobs.loads),
            flushed: flushed.into_iter().collect(),
            first: Vec::new(),
        })
    }

    fn copies_ended(&mut self) -> Answer<Vec<u32>> {
        let mut loaded = Vec::new();
        for id in std::mem::take(&mut self.jobs.arrived) {
            let copy = self.pool.copies.finish(id)?;
            self.below.ended(&copy, id);
            self.jobs.fenced.remove(&id);
            if let Some(job) = self.jobs.open.remove(&id) {
                self.jobs.loading.release_keys(&job.loads);
                if copy.to == GPU {
                    loaded.push(job.request);
                }
            }
        }
        Ok(loaded)
    }

    fn release_blocks(&mut self, lease: LeaseId) -> Answer<()> {
        let ended = self.pool.leases.end(lease)?;
        self.pool.release(ended.request);
        Ok(())
    }

    fn step_computed(&mut self, now_ns: u64) -> Answer<Vec<Order>> {
        Ok(self.saves_of_step(now_ns))
    }

    fn waits_for_copies(&self) -> bool {
        self.lmcache.is_some()
    }

    fn preempted(&mut self, request: u32) {
        let own: Vec<MoveId> = self.jobs.of(request).collect();
        self.jobs.flushed.extend(own);
        self.to_offer[request as usize] = NOTHING;
    }

    fn ended(&mut self, Ending { request, runs, .. }: Ending) {
        if let Some(own) = &mut self.lmcache {
            own.ended(request, self.now_ns);
            return;
        }
        let own: Vec<MoveId> = self.jobs.of(request).collect();
        self.jobs.fenced.extend(own);
        if runs && self.offers_more(request) {
            self.pool.keep_table(request);
        } else {
            self.to_offer[request as usize] = NOTHING;
        }
        let keyed = self.pool.keyed(request);
        self.jobs.ended.push(Ended { request, keyed });
    }
}

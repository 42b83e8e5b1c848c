//! Blocks that a step stores in the tier.

use super::{numbers, Open, SimpleTier, Transfer};
use crate::convert::fit;
use crate::engines::group_tier::bring::count_by_group;
use crate::engines::group_tier::connector::InStep;
use crate::engines::group_tier::{Known, Site};
use crate::engines::groups::manager::{GroupManager, KeyedState};
use crate::engines::groups::pool::NULL;
use crate::engines::groups::Kind;
use crate::store::connector::{Ending, StepCopies};
use crate::store::{MoveId, Order, STAGING};

impl SimpleTier {
    /// Decides the copies of a step, and sends the last ones of requests that have ended since the step before.
    pub fn step_decided(&mut self, site: Site<'_>, parts: &[InStep]) -> StepCopies {
        let all = std::mem::take(&mut self.preempts);
        let flushed: Vec<MoveId> = self.open.keys().copied().filter(|_| all).collect();
        self.has_ended = false;
        let (manager, mut stores) = (site.manager, Transfer::default());
        let states = manager.take_states();
        if let Some(mut scan) = self.scan.take() {
            let lacks = |block| self.is_to_store(manager, block);
            let blocks = scan.walk(manager, self.cpu.free_blocks(), lacks);
            if !parts.is_empty() {
                scan.restart();
            }
            self.scan = Some(scan);
            self.take(manager, blocks, &mut stores);
        } else {
            self.store_states(manager, &states, &mut stores);
            // of the requests that join, those that were preempted come last; then those that ran before
            let mut parts: Vec<&InStep> = parts.iter().collect();
            parts.sort_by_key(|part| self.turn(part.request));
            for part in parts {
                self.store_computed(manager, part, &mut stores);
            }
        }
        let last = std::mem::take(&mut self.decided.last);
        stores.gpu.extend(last.gpu);
        stores.cpu.extend(last.cpu);
        let before = std::mem::replace(&mut self.recorded, self.cpu.counts().evicted);
        site.records
            .evicted_from(STAGING, self.recorded - before, site.now_ns);
        StepCopies {
            stores: self.start_stores(manager, stores),
            loads: self.start_loads(manager),
            flushed,
            ..StepCopies::default()
        }
    }

    fn start_stores(&mut self, manager: &GroupManager, stores: Transfer) -> Vec<Order> {
        let Transfer { gpu, cpu } = stores;
        if gpu.is_empty() {
            return Vec::new();
        }
        let keys = gpu.iter().filter_map(|&block| manager.pool.key_of(block));
        let by_group = count_by_group(manager.groups().len(), keys.map(|key| key.group));
        let id = self.copies.write(numbers(&cpu), gpu, &[]);
        let requests = Vec::new();
        self.open.insert(id, Open { requests, by_group });
        self.copies.take_orders()
    }

    /// Takes blocks of the tier for blocks of the pool, which are held until they are copied.
    fn take(&mut self, manager: &mut GroupManager, blocks: Vec<u32>, into: &mut Transfer) {
        self.cpu
            .take(fit::<u32>(blocks.len()), |block| into.cpu.push(block));
        for block in blocks {
            manager.pool.touch(block);
            into.gpu.push(block);
            if self.scan.is_none() {
                self.read.insert(block);
            }
        }
    }

    /// Returns true if a block has a key that the tier lacks, and is not being stored.
    fn is_to_store(&self, manager: &GroupManager, block: u32) -> bool {
        let key = manager.pool.key_of(block);
        let is_new = key.is_some_and(|key| self.cpu.find(key.group, key.key).0 == NULL);
        is_new && !self.read.contains(&block)
    }

    /// Stores states that have got their keys, as far as the tier has blocks for them.
    fn store_states(
        &mut self,
        manager: &mut GroupManager,
        states: &[KeyedState],
        into: &mut Transfer,
    ) {
        for state in states {
            let is_known = self.requests.known.contains_key(&state.request);
            let fits = self.cpu.free_blocks() > 0;
            if is_known && fits && self.is_to_store(manager, state.block) {
                self.take(manager, vec![state.block], into);
            }
        }
    }

    fn turn(&self, request: u32) -> u8 {
        match self.requests.known.get(&request) {
            Some(known) if known.is_new => u8::from(self.requests.resumed.contains(&request)),
            _ => 2,
        }
    }

    /// Stores the blocks of a request in a step that the steps before compute.
    fn store_computed(&mut self, manager: &mut GroupManager, part: &InStep, into: &mut Transfer) {
        let Some(mut known) = self.requests.known.remove(&part.request) else {
            return;
        };
        known.extend(manager, part.request);
        let blocks = self.computed(manager, part.request, &mut known, part.confirmed_tokens);
        self.requests.known.insert(part.request, known);
        self.take(manager, blocks, into);
    }

    /// Returns the blocks of a request's first `confirmed` tokens that are to be stored, as many as the tier has free
    /// ones for; `known.next` passes them and those that need no store.
    fn computed(
        &self,
        manager: &GroupManager,
        request: u32,
        known: &mut Known,
        confirmed: u64,
    ) -> Vec<u32> {
        let (free, mut blocks) = (self.cpu.free_blocks() as usize, Vec::new());
        let aligned = confirmed / manager.align() * manager.align();
        for (number, group) in manager.groups().iter().enumerate() {
            if blocks.len() >= free {
                break;
            }
            let (table, next) = (&known.tables[number], &mut known.next[number]);
            let ready = group.whole(aligned).min(fit::<u32>(table.len()));
            while group.kind != Kind::Linear && *next < ready {
                let block = match table[*next as usize] {
                    // it has left a window, and may still be in the pool
                    NULL => manager.pool.find(number, group.key(request, *next)).0,
                    block => block,
                };
                if block != NULL && self.is_to_store(manager, block) {
                    if blocks.len() >= free {
                        break;
                    }
                    blocks.push(block);
                }
                *next += 1;
            }
        }
        blocks
    }

    /// Decides the last stores of a request that ends, whose blocks are not released yet.
    pub fn request_ended(&mut self, manager: &mut GroupManager, ending: Ending) {
        let request = ending.request;
        if let Some(mut known) = self.requests.known.remove(&request) {
            known.is_new = true;
            known.extend(manager, request);
            let blocks = self.computed(manager, request, &mut known, ending.confirmed_tokens);
            let mut last = std::mem::take(&mut self.decided.last);
            self.take(manager, blocks, &mut last);
            self.decided.last = last;
        }
        self.release_found(request);
        self.requests.resumed.remove(&request);
        self.has_ended = true;
    }
}

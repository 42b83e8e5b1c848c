//! The tier below vLLM's own scheduler (0.33.0, `OffloadingConnectorScheduler`): the tables of requests as the connector
//! has them, and the copies of each step.
//!
//! A block that has left a window stays in the connector's table until it is given to a request. Stores of windows and
//! states, and those of requests that have ended, must end before a block that they read is written again.

use std::collections::{BTreeMap, BTreeSet};

use super::known::Known;
use super::offer::Table;
use super::to_offer::{GroupSlot, Held};
use super::{GroupTier, Site};
use crate::convert::fit;
use crate::engines::groups::manager::{GroupManager, KeyedState};
use crate::engines::groups::pool::NULL;
use crate::engines::groups::Kind;
use crate::store::connector::{Ending, StepCopies};
use crate::store::{Answer, MoveId, Order, GPU, STAGING};

/// A step's new parts of the tables.
#[derive(Debug, Default)]
struct NewBlocks {
    /// Blocks given to requests since the last step.
    given: BTreeSet<u32>,
    /// Lengths of the tables of the step's requests before it.
    before: BTreeMap<u32, Vec<usize>>,
}

/// A request in a decided step.
#[derive(Debug, Clone, Copy)]
pub struct InStep {
    /// The request.
    pub request: u32,
    /// Its tokens that have KV when the step has ended.
    pub computed_tokens: u64,
    /// Its known tokens that have KV when the steps before have ended.
    pub confirmed_tokens: u64,
}

impl GroupTier {
    /// Notes that a waiting request is looked up: it has no blocks. Returns true if copies of it have not ended.
    pub fn is_asked(&mut self, groups: usize, request: u32) -> bool {
        self.connector.known.insert(request, Known::new(groups));
        self.connector.jobs.of(request).next().is_some()
    }

    /// Loads the missing blocks of an admission with the next step.
    pub fn load_later(
        &mut self,
        manager: &GroupManager,
        request: u32,
        lacking: &[GroupSlot],
        hit: u64,
    ) {
        let keys = self.read(manager, request, lacking, &[]).keys;
        let connector = &mut self.connector;
        connector.jobs.loading.hold(&keys);
        let orders = self.copies.take_orders();
        connector.jobs.start(&orders, request, &keys);
        connector.jobs.loads.extend(orders);
        let groups = manager.groups();
        let blocks = (0..groups.len()).flat_map(|number| manager.blocks_of(request, number));
        connector
            .jobs
            .given
            .extend(blocks.filter(|&block| block != NULL));
        if let Some(known) = connector.known.get_mut(&request) {
            let per = u64::from(self.chunks.blocks);
            let chunks = groups
                .iter()
                .map(|group| hit.div_ceil(group.block_size * per));
            known.next = chunks.map(fit::<u32>).collect();
        }
    }

    /// Decides the copies of a step, and the last ones of requests that have ended since the step before.
    pub fn step_decided(&mut self, mut site: Site<'_>, parts: &[InStep]) -> StepCopies {
        let new = self.tables_of(site.manager, parts);
        self.drop_given(site.manager, &new);
        let mut flushed = std::mem::take(&mut self.connector.jobs.flushed);
        let fenced = new
            .given
            .iter()
            .filter_map(|block| self.connector.fenced.get(block));
        flushed.extend(fenced.flatten());
        let mut stores = Vec::new();
        self.offer_states(&mut site, &mut stores);
        for &InStep {
            request,
            computed_tokens,
            ..
        } in parts
        {
            let tokens = computed_tokens.min(self.prompt_tokens[request as usize]);
            stores.extend(self.offer_chunks(&mut site, request, tokens));
        }
        for Ending {
            request,
            prompt_tokens,
            ..
        } in std::mem::take(&mut self.connector.ended)
        {
            for order in self.offer_chunks(&mut site, request, prompt_tokens) {
                if self.fence(order.id, |block| new.given.contains(&block)) {
                    flushed.insert(order.id);
                }
                stores.push(order);
            }
            self.connector.known.remove(&request);
            self.tier.finish(request);
        }
        StepCopies {
            stores,
            loads: std::mem::take(&mut self.connector.jobs.loads),
            flushed: flushed.into_iter().collect(),
            first: Vec::new(),
        }
    }

    /// Adds the blocks of a step to the tables of its requests.
    fn tables_of(&mut self, manager: &GroupManager, parts: &[InStep]) -> NewBlocks {
        let mut new = NewBlocks {
            given: std::mem::take(&mut self.connector.jobs.given)
                .into_iter()
                .collect(),
            ..NewBlocks::default()
        };
        for &InStep { request, .. } in parts {
            let Some(known) = self.connector.known.get_mut(&request) else {
                continue;
            };
            let before = known.extend(manager, request);
            let lengths: &Vec<usize> = new.before.entry(request).or_insert(before);
            for (table, &from) in known.tables.iter().zip(lengths) {
                new.given
                    .extend(table[from..].iter().filter(|&&block| block != NULL));
            }
        }
        new
    }

    /// Removes blocks that were given to requests from what is still to be offered of windows.
    fn drop_given(&mut self, manager: &GroupManager, new: &NewBlocks) {
        let per = self.chunks.blocks as usize;
        for (request, known) in &mut self.connector.known {
            let before = new.before.get(request);
            let prompt = self.prompt_tokens[*request as usize];
            for (number, group) in manager.groups().iter().enumerate() {
                let table = &mut known.tables[number];
                let end = before.map_or(table.len(), |lengths| lengths[number]);
                let (start, end) = (
                    known.next[number] as usize * per,
                    end.min(group.whole(prompt) as usize),
                );
                if group.kind == Kind::Full || start >= end {
                    continue;
                }
                let taken = |block: &&mut u32| new.given.contains(block);
                table[start..end]
                    .iter_mut()
                    .filter(taken)
                    .for_each(|block| *block = NULL);
            }
        }
    }

    /// Offers the states that have got their keys, each alone.
    fn offer_states(&mut self, site: &mut Site<'_>, stores: &mut Vec<Order>) {
        for KeyedState {
            request,
            group,
            position,
            block,
        } in site.manager.take_states()
        {
            let tokens = u64::from(position + 1) * site.manager.groups()[group].block_size;
            let is_end = (position + 1) % self.chunks.blocks == 0;
            let is_prompt = tokens <= self.prompt_tokens[request as usize];
            if !(is_end && is_prompt && self.connector.known.contains_key(&request)) {
                continue;
            }
            let state = Held {
                slot: GroupSlot::new(group, position),
                block,
                is_needed: true,
            };
            let orders = self.stored(site, request, &[state]).unwrap_or_default();
            for order in &orders {
                self.fence(order.id, |_| true);
            }
            stores.extend(orders);
        }
    }

    /// Offers the chunks of a prompt's first `tokens` tokens that have not been, together; a refused offer comes again.
    fn offer_chunks(&mut self, site: &mut Site<'_>, request: u32, tokens: u64) -> Vec<Order> {
        let Some(known) = self.connector.known.get(&request) else {
            return Vec::new();
        };
        let (per, manager) = (self.chunks.blocks, &*site.manager);
        let (mut ends, mut together) = (Vec::new(), Vec::new());
        for (number, group) in manager.groups().iter().enumerate() {
            let table = &known.tables[number];
            let end = (group.whole(tokens) / per).min(fit::<u32>(table.len()) / per);
            ends.push(end);
            if group.kind != Kind::Linear && end > known.next[number] {
                let block = |at: u32| table[at as usize];
                let of = Table {
                    manager,
                    request,
                    number,
                    block: &block,
                };
                of.chunks(known.next[number] * per..end * per, per, &mut together);
            }
        }
        let orders = match together.is_empty() {
            true => Some(Vec::new()),
            false => self.stored(site, request, &together),
        };
        let Some(orders) = orders else {
            return Vec::new();
        };
        let windows: BTreeSet<u32> = together
            .iter()
            .filter(|held| site.manager.groups()[held.slot.group].kind != Kind::Full)
            .map(|held| held.block)
            .collect();
        for order in &orders {
            let blocks = self.copies.blocks_of(order.id).iter();
            for &block in blocks.filter(|block| windows.contains(block)) {
                self.connector
                    .fenced
                    .entry(block)
                    .or_default()
                    .insert(order.id);
            }
        }
        if let Some(known) = self.connector.known.get_mut(&request) {
            for (next, end) in known.next.iter_mut().zip(ends) {
                *next = end.max(*next);
            }
        }
        orders
    }

    /// Offers blocks; returns the copies of those that are new in the tier, `None` if it refuses.
    fn stored(&mut self, site: &mut Site<'_>, request: u32, blocks: &[Held]) -> Option<Vec<Order>> {
        let evicted = self.give(site.manager, request, blocks)?;
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        let orders = self.copies.take_orders();
        self.connector.jobs.start(&orders, request, &[]);
        Some(orders)
    }

    /// Fences the blocks that a store reads; returns true if a predicate holds for one of them.
    fn fence(&mut self, id: MoveId, is_so: impl Fn(u32) -> bool) -> bool {
        let mut any = false;
        for &block in self.copies.blocks_of(id) {
            any |= is_so(block);
            self.connector.fenced.entry(block).or_default().insert(id);
        }
        any
    }

    /// Lets the next step wait for the copies of a request that was preempted.
    pub fn preempted(&mut self, request: u32) {
        let own: Vec<MoveId> = self.connector.jobs.of(request).collect();
        self.connector.jobs.flushed.extend(own);
    }

    /// Notes the end of a request: the blocks that its stores read may be given to others.
    pub fn request_ended(&mut self, ending: Ending) {
        let own: Vec<MoveId> = self.connector.jobs.of(ending.request).collect();
        for id in own {
            if !self.copies.writes_the_pool(id) {
                self.fence(id, |_| false);
            }
        }
        self.connector.ended.push(ending);
    }

    /// Applies the copies that have ended; returns the requests whose load has.
    pub fn copies_ended(&mut self) -> Answer<Vec<u32>> {
        let mut loaded = Vec::new();
        for id in std::mem::take(&mut self.connector.jobs.arrived) {
            let copy = self.copies.finish(id)?;
            self.by_group.remove(&id);
            self.tier.in_use.release_keys(&copy.keys);
            for block in &copy.blocks {
                if let Some(ids) = self.connector.fenced.get_mut(block) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        self.connector.fenced.remove(block);
                    }
                }
            }
            if let Some(job) = self.connector.jobs.open.remove(&id) {
                self.connector.jobs.loading.release_keys(&job.loads);
                if copy.to == GPU {
                    loaded.push(job.request);
                }
            }
        }
        Ok(loaded)
    }

    /// Returns true if no copy is in flight and no request has ended since the last step.
    pub fn is_quiet(&self) -> bool {
        self.connector.jobs.open.is_empty() && self.connector.ended.is_empty()
    }

    /// Returns true if chunks of a request's prompt are still to be offered.
    pub fn offers_more(&self, manager: &GroupManager, request: u32) -> bool {
        let Some(known) = self.connector.known.get(&request) else {
            return false;
        };
        let prompt = self.prompt_tokens[request as usize];
        let chunks = manager
            .groups()
            .iter()
            .map(|group| group.whole(prompt) / self.chunks.blocks);
        known
            .next
            .iter()
            .zip(chunks)
            .any(|(&next, chunks)| next < chunks)
    }
}

//! Eviction orders other than recency: the events reported to them, and the victims they name.
//!
//! A tier with such an order has single blocks as runs, so its policy sees blocks. A block joins a tier's
//! order at its first release there, its request's deepest block first; later releases count as uses.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::node::State;
use super::{PairHasher, Store};
use crate::convert::fit;
use crate::ids::{NodeId, ROOT};
use crate::policies::leaf::Facts;
use crate::policies::order::{EvictionOrder, Named, Standing};

/// Found and computed blocks of the request that releases a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub found_blocks: u32,
    pub computed_blocks: u32,
}

const NO_NUMBER: u32 = u32::MAX;

/// A tier's order, and its record of each block by number.
struct TierOrder {
    order: Box<dyn EvictionOrder>,
    known: Vec<Option<(Facts, Standing)>>,
}

/// The orders of a store's tiers, and the numbers of its blocks.
#[derive(Default)]
pub struct Orders {
    tiers: Vec<Option<TierOrder>>,
    /// Block numbers by (number of the block before, key): a block keeps its number when it returns. Only
    /// looked up.
    numbers: HashMap<(u32, u64), u32, BuildHasherDefault<PairHasher>>,
    node_of: Vec<NodeId>,
    number_of: Vec<u32>,
    now_ns: u64,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "orders over {} blocks", self.node_of.len())
    }
}

impl Orders {
    fn number(&mut self, node: NodeId, parent: NodeId, key: u64) {
        let above = self.number_of.get(parent as usize).copied();
        let fresh = fit::<u32>(self.node_of.len());
        let slot = (above.unwrap_or(NO_NUMBER), key);
        let number = *self.numbers.entry(slot).or_insert(fresh);
        if number == fresh {
            self.node_of.push(node);
        }
        self.node_of[number as usize] = node;
        if self.number_of.len() <= node as usize {
            self.number_of.resize(node as usize + 1, NO_NUMBER);
        }
        self.number_of[node as usize] = number;
    }

    /// Returns the number of a block that is in a tier's order, its record, and the order.
    fn known(
        &mut self,
        node: NodeId,
        tier: usize,
    ) -> Option<(u32, &mut (Facts, Standing), &mut dyn EvictionOrder)> {
        let number = *self.number_of.get(node as usize)?;
        let TierOrder { order, known } = self.tiers[tier].as_mut()?;
        let known = known.get_mut(number as usize)?.as_mut()?;
        Some((number, known, order.as_mut()))
    }
}

impl Store {
    /// Sets the tiers' eviction orders; `None` keeps recency. Call it before anything is stored.
    pub fn with_orders(
        mut self,
        orders: impl IntoIterator<Item = Option<Box<dyn EvictionOrder>>>,
    ) -> Self {
        let mut all = Orders::default();
        all.tiers.resize_with(self.tiers.len(), || None);
        for (tier, order) in all.tiers.iter_mut().zip(orders) {
            *tier = order.map(|order| TierOrder {
                order,
                known: Vec::new(),
            });
        }
        self.rules.orders = all.tiers.iter().any(Option::is_some).then(|| Box::new(all));
        self
    }

    /// Returns true if a tier has an eviction order other than recency.
    pub(super) fn has_order(&self, tier: usize) -> bool {
        self.rules
            .orders
            .as_ref()
            .is_some_and(|orders| orders.tiers[tier].is_some())
    }

    /// Returns true if runs are single blocks.
    pub(super) fn single_blocks(&self) -> bool {
        self.rules.orders.is_some()
    }

    pub(super) fn notify_orders(&mut self, now_ns: u64) {
        if let Some(orders) = &mut self.rules.orders {
            orders.now_ns = now_ns;
        }
    }

    /// Reports to the orders that a request released a block: it joins the order, or was used.
    pub(super) fn released(&mut self, id: NodeId, release: Release) {
        for tier in 0..self.tiers.len() {
            if !self.has_order(tier) || self.copy(id, tier).state != State::Ready {
                continue;
            }
            let orders = self.rules.orders.as_mut().expect("there are orders");
            let now_ns = fit::<i64>(orders.now_ns);
            let Some((number, (facts, _), order)) = orders.known(id, tier) else {
                self.enter_order(id, tier, release);
                continue;
            };
            facts.hits += 1;
            facts.last_access = self.clock.access;
            facts.last_access_ns = now_ns;
            order.used(number, facts);
        }
    }

    fn enter_order(&mut self, id: NodeId, tier: usize, release: Release) {
        let node = &self.trie.nodes[id as usize];
        let access = self.copy(id, tier).access;
        let orders = self.rules.orders.as_mut().expect("there are orders");
        let number = orders.number_of[id as usize];
        let parent = (node.parent != ROOT).then(|| orders.number_of[node.parent as usize]);
        let facts = Facts {
            depth: node.start,
            hits: 1,
            last_access: access,
            created: self.clock.access,
            last_access_ns: fit::<i64>(orders.now_ns),
            found_blocks: release.found_blocks,
            computed_blocks: release.computed_blocks,
        };
        let tier = orders.tiers[tier].as_mut().expect("it has an order");
        if tier.known.len() <= number as usize {
            tier.known.resize(number as usize + 1, None);
        }
        tier.known[number as usize] = Some((facts, Standing::default()));
        let named = Named { number, parent };
        tier.order.join(named, &facts);
    }

    /// Reports to a tier's order that a block may or may not be evicted now.
    pub(super) fn stand(&mut self, id: NodeId, tier: usize, standing: Standing) {
        if !self.has_order(tier) {
            return;
        }
        let orders = self.rules.orders.as_mut().expect("there are orders");
        if standing.idle && orders.known(id, tier).is_none() {
            self.enter_order(id, tier, self.released_alone(id));
        }
        let orders = self.rules.orders.as_mut().expect("there are orders");
        let known = orders.known(id, tier);
        if let Some((number, (_, before), order)) = known.filter(|known| known.1 .1 != standing) {
            *before = standing;
            order.stands(number, standing);
        }
    }

    /// Returns the release of a block computed alone: all blocks before it were found.
    pub(super) fn released_alone(&self, id: NodeId) -> Release {
        Release {
            found_blocks: self.trie.nodes[id as usize].start,
            computed_blocks: 1,
        }
    }

    /// Reports to a tier's order that a block has no copy there any more.
    pub(super) fn left(&mut self, id: NodeId, tier: usize) {
        let Some(orders) = &mut self.rules.orders else {
            return;
        };
        let Some((number, ..)) = orders.known(id, tier) else {
            return;
        };
        let tier = orders.tiers[tier].as_mut().expect("it is known there");
        tier.known[number as usize] = None;
        tier.order.leave(number);
    }

    /// Numbers a block that was linked into the trie.
    pub(super) fn number_block(&mut self, id: NodeId) {
        if let Some(orders) = &mut self.rules.orders {
            let node = &self.trie.nodes[id as usize];
            orders.number(id, node.parent, self.keys.key(node.owner, node.start));
        }
    }

    /// Returns the next victim in the tier's order, or the least recent one if the order names none.
    pub(super) fn next_by_order(&mut self, tier: usize, wanted: u64) -> Option<NodeId> {
        let orders = self.rules.orders.as_mut()?;
        let now_ns = orders.now_ns;
        let order = &mut orders.tiers[tier].as_mut()?.order;
        match order.next_victim(wanted, now_ns) {
            Some(number) => Some(orders.node_of[number as usize]),
            None => self.least_recent(tier),
        }
    }

    /// Discards from every tier the blocks whose time to live ended by `now_ns`.
    pub fn expire(&mut self, now_ns: u64) {
        self.notify_time(now_ns);
        for tier in 0..self.tiers.len() {
            while let Some(id) = self.next_lapsed(tier) {
                let (start, end) = (
                    self.trie.nodes[id as usize].start,
                    self.trie.nodes[id as usize].end,
                );
                self.note_evicted(tier, id, start, end, now_ns);
                self.vacate(id, tier);
                self.discard_if_gone(id);
            }
        }
    }

    fn next_lapsed(&mut self, tier: usize) -> Option<NodeId> {
        let orders = self.rules.orders.as_mut()?;
        let now_ns = orders.now_ns;
        let number = orders.tiers[tier].as_mut()?.order.next_lapsed(now_ns)?;
        Some(orders.node_of[number as usize])
    }
}

//! Eviction candidates: the holds on a run on a tier, its candidacy, and the number of evictable blocks.

use super::node::State;
use super::Store;
use crate::ids::{NodeId, ROOT};
use crate::policies::order::Standing;

impl Store {
    /// As [`Store::refresh`], for a change that concerns one tier.
    pub(super) fn refresh_on(&mut self, id: NodeId, tier: usize) {
        if self.rules.orders.is_some() {
            self.refresh(id);
        } else if id != ROOT {
            self.refresh_copy(id, tier);
        }
    }

    /// As [`Store::refresh`], after a change on another tier or of the run's pins: its last copy may become
    /// evictable.
    pub(super) fn refresh_last(&mut self, id: NodeId, changed: usize) {
        let last = self.tiers.len() - 1;
        if changed != last && self.copy(id, last).state == State::Ready {
            self.refresh_on(id, last);
        }
    }

    /// Updates a run's candidacy and its share of the evictable blocks on one tier.
    fn refresh_copy(&mut self, id: NodeId, t: usize) {
        let node = &self.trie.nodes[id as usize];
        let tiers = self.tiers.len();
        let copies = &mut self.trie.copies[id as usize * tiers..][..tiers];
        // a pinned run keeps its last copy
        let kept =
            t + 1 == tiers && node.pins > 0 && copies[..t].iter().all(|c| c.state == State::Absent);
        let (tier, copy) = (&mut self.tiers[t], &mut copies[t]);
        let idle = copy.state == State::Ready && copy.holds == 0 && !kept;
        let evictable = if idle { node.end - node.start } else { 0 };
        tier.evictable = tier.evictable + u64::from(evictable) - u64::from(copy.evictable);
        copy.evictable = evictable;
        let listed = if idle && copy.children == 0 {
            (copy.access, node.end)
        } else {
            (0, 0)
        };
        if listed != copy.listed {
            if let (access, end @ 1..) = copy.listed {
                tier.candidates.remove(&(access, u32::MAX - end, id));
            }
            if let (access, end @ 1..) = listed {
                tier.candidates.insert((access, u32::MAX - end, id));
            }
            copy.listed = listed;
        }
    }

    /// Updates a run's candidacy and its share of the evictable blocks on every tier.
    pub(super) fn refresh(&mut self, id: NodeId) {
        if id == ROOT {
            return;
        }
        for tier in 0..self.tiers.len() {
            self.refresh_copy(id, tier);
        }
        if self.rules.orders.is_some() {
            self.refresh_orders(id);
        }
    }

    fn refresh_orders(&mut self, id: NodeId) {
        for tier in 0..self.tiers.len() {
            let copy = self.copy(id, tier);
            let standing = Standing {
                idle: copy.evictable > 0,
                leaf: copy.children == 0,
            };
            self.stand(id, tier, standing);
        }
    }

    /// Holds a run and all before it on a tier: none of them is evicted there.
    pub(super) fn hold(&mut self, tier: usize, id: NodeId) {
        self.each_run(id, 0, |store, run| {
            let copy = store.copy_mut(run, tier);
            copy.holds += 1;
            let alone = copy.holds == 1;
            let node = &mut store.trie.nodes[run as usize];
            node.pins += 1;
            let first = node.pins == 1;
            // a second hold changes no candidate
            if alone {
                store.refresh_on(run, tier);
            }
            if first {
                store.refresh_last(run, tier);
            }
        });
    }

    /// Releases a [`Store::hold`].
    pub(super) fn unhold(&mut self, tier: usize, id: NodeId) {
        self.each_run(id, 0, |store, run| {
            let copy = store.copy_mut(run, tier);
            copy.holds -= 1;
            let last = copy.holds == 0;
            let node = &mut store.trie.nodes[run as usize];
            node.pins -= 1;
            let free = node.pins == 0;
            if last {
                store.refresh_on(run, tier);
            }
            if free {
                store.refresh_last(run, tier);
            }
        });
    }
}

//! Victim selection: unheld runs without a child on the same tier, oldest access first, deepest first within
//! one release. Where a tier has an eviction order, the runs that it names.

use std::collections::{BTreeMap, BTreeSet};

use super::Store;
use crate::convert::fit;
use crate::ids::NodeId;

impl Store {
    pub(super) fn next_victim(&mut self, tier: usize, wanted: u64) -> Option<NodeId> {
        if self.has_order(tier) {
            return self.next_by_order(tier, wanted);
        }
        self.least_recent(tier)
    }

    pub(super) fn least_recent(&self, tier: usize) -> Option<NodeId> {
        self.tiers[tier].candidates.first().map(|&(_, _, id)| id)
    }

    /// Returns the runs to evict for `blocks` blocks, in eviction order. Changes nothing but for cutting the
    /// last run. Fewer blocks if too few are evictable.
    pub(super) fn select_victims(&mut self, tier: usize, blocks: u64) -> Vec<NodeId> {
        let victims = match self.least_recent(tier) {
            Some(id) if blocks > 0 && self.blocks_of(&[id]) >= blocks => vec![id],
            _ => self.select_several(tier, blocks),
        };
        let taken = self.blocks_of(&victims);
        if taken > blocks {
            let last = victims[victims.len() - 1];
            self.split(
                last,
                self.trie.nodes[last as usize].start + fit::<u32>(taken - blocks),
            );
        }
        victims
    }

    /// Returns the runs to evict for `blocks` blocks, in eviction order; the last run may be longer than
    /// needed.
    fn select_several(&self, tier: usize, blocks: u64) -> Vec<NodeId> {
        let mut victims = Vec::new();
        let mut left = blocks;
        let mut bared: BTreeMap<NodeId, u32> = BTreeMap::new(); // children taken so far, by parent
        let mut promoted: BTreeSet<(u64, u32, NodeId)> = BTreeSet::new();
        let mut listed = self.tiers[tier].candidates.iter().peekable();
        while left > 0 {
            let own = listed
                .peek()
                .is_some_and(|&next| promoted.first().is_none_or(|p| next < p));
            let next = if own {
                listed.next().copied()
            } else {
                promoted.pop_first()
            };
            let Some((_, _, id)) = next else {
                return victims;
            };
            victims.push(id);
            let node = &self.trie.nodes[id as usize];
            left = left.saturating_sub(u64::from(node.blocks()));
            let parent = &self.trie.nodes[node.parent as usize];
            let taken = bared.entry(node.parent).or_default();
            *taken += 1;
            let copy = self.copy(node.parent, tier);
            if copy.evictable > 0 && copy.children == *taken {
                promoted.insert((copy.access, u32::MAX - parent.end, node.parent));
            }
        }
        victims
    }

    pub(super) fn blocks_of(&self, runs: &[NodeId]) -> u64 {
        let blocks = |&id: &NodeId| u64::from(self.trie.nodes[id as usize].blocks());
        runs.iter().map(blocks).sum()
    }
}

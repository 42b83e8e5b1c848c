//! Partial eviction by moving the border between two runs: the evicted blocks join the run below, which has
//! left the tier already.
//!
//! The result equals a split, the eviction of the lower part and its merge with the run below, in one step.

use std::iter::zip;

use super::join::are_alike;
use super::node::State;
use super::ready::TimeSpan;
use super::Store;
use crate::convert::fit;
use crate::ids::{BlockRange, NodeId, NONE};

impl Store {
    /// Evicts the last `blocks` blocks of the least recent run by adding them to its only child. Requires
    /// that the run is longer, that the tier below has it, and that it otherwise equals its child. Returns
    /// false, nothing changed, if not.
    pub(super) fn evict_to_child(&mut self, tier: usize, blocks: u64, now_ns: u64) -> bool {
        let Some(upper) = self.least_recent(tier) else {
            return false;
        };
        let lower = self.trie.nodes[upper as usize].first_child;
        if self.blocks_of(&[upper]) <= blocks || !self.become_alike(upper, lower, tier) {
            return false;
        }
        let end = self.trie.nodes[upper as usize].end;
        let cut = end - fit::<u32>(blocks);
        self.note_evicted(tier, upper, cut, end, now_ns);
        self.log_change(upper, tier, false, BlockRange::new(cut, end));
        self.move_border(upper, lower, cut);
        self.tiers[tier].cached -= blocks;
        self.tiers[tier].free += blocks;
        true
    }

    /// Returns true if a run differs from its only child only by a copy on tier `without`. The next tier must
    /// have that copy too, and no request may hold either run: a holder may be about to name a run by its
    /// first block.
    fn become_alike(&self, upper: NodeId, lower: NodeId, without: usize) -> bool {
        let held = |id: NodeId| self.trie.nodes[id as usize].pins > 0;
        lower != NONE
            && self.is_only_child(upper, lower)
            && !held(upper)
            && !held(lower)
            && self.copy(upper, without + 1).state == State::Ready
            && self.copy(lower, without).state == State::Absent
            && zip(self.copies_of(upper), self.copies_of(lower))
                .enumerate()
                .all(|(tier, (above, below))| tier == without || are_alike(above, below))
    }

    /// Moves the end of a run and the start of its only child to block `at` of the upper run. Copies that the
    /// child does not have are dropped for the moved blocks.
    fn move_border(&mut self, upper: NodeId, lower: NodeId, at: u32) {
        let end = self.trie.nodes[upper as usize].end;
        for tier in 0..self.tiers.len() {
            let last = TimeSpan {
                end,
                times: self.copy(upper, tier).times,
            };
            let (moved, times) = self.cut_time_spans(upper, tier, at);
            self.copy_mut(upper, tier).times = times;
            if self.copy(lower, tier).state != State::Absent {
                self.prepend_time_spans(lower, tier, moved, last);
            }
        }
        self.trie.nodes[upper as usize].end = at;
        self.trie.nodes[lower as usize].start = at;
        let owner = self.trie.nodes[lower as usize].owner;
        self.trie
            .children
            .remove(&(upper, self.keys.key(owner, end)));
        self.trie
            .children
            .insert((upper, self.keys.key(owner, at)), lower);
        self.refresh(upper);
        self.refresh(lower);
    }
}

//! The border between two runs moves: blocks that leave a tier one by one go over to the run below, which has left already.
//!
//! It is what a split, the departure of the lower part and its joining with the run below come to, in one step.

use std::iter::zip;

use super::join::are_alike;
use super::node::State;
use super::times::TimeSpan;
use super::Store;
use crate::ids::{NodeId, NONE};

impl Store {
    /// Evicts so many blocks from a tier where the tier below has them, they end a longer run, and the run that follows
    /// is what they become. False, nothing changed, elsewhere.
    pub(super) fn evict_to_child(&mut self, tier: usize, blocks: u64, now_ns: u64) -> bool {
        let Some(upper) = self.least_recent(tier) else {
            return false;
        };
        let lower = self.nodes[upper as usize].first_child;
        if self.blocks_of(&[upper]) <= blocks || !self.become_alike(upper, lower, tier) {
            return false;
        }
        let end = self.nodes[upper as usize].end;
        let cut = end - blocks as u32;
        self.note_evicted(tier, upper, cut, end, now_ns);
        self.log_change(upper, tier, false, (cut, end));
        self.move_border(upper, lower, cut);
        self.tiers[tier].cached -= blocks;
        self.tiers[tier].free += blocks;
        true
    }

    /// Whether a run is like its only child but for a copy on a tier, the one below has it, and nobody holds either:
    /// whoever does may be about to name one of them by where it begins.
    fn become_alike(&self, upper: NodeId, lower: NodeId, without: usize) -> bool {
        let held = |id: NodeId| self.nodes[id as usize].pins > 0;
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

    /// Lets a run end, and its only child begin, before block `at`, which was the upper one's. What the child has no
    /// copy of is gone for those blocks.
    fn move_border(&mut self, upper: NodeId, lower: NodeId, at: u32) {
        let end = self.nodes[upper as usize].end;
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
        self.nodes[upper as usize].end = at;
        self.nodes[lower as usize].start = at;
        let owner = self.nodes[lower as usize].owner;
        self.children.remove(&(upper, self.keys.key(owner, end)));
        self.children
            .insert((upper, self.keys.key(owner, at)), lower);
        self.refresh(upper);
        self.refresh(lower);
    }
}

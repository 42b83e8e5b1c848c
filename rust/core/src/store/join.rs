//! Merging runs: neighbors that a write, an eviction or a step separated become one run once they no longer
//! differ.
//!
//! Without merging, a block that is written or evicted alone would stay a run of its own. Decoded blocks
//! would be as many runs as blocks, and each holder of the last would count on all of them.

use std::iter::zip;

use super::node::{Copy, Node, State};
use super::ready::TimeSpan;
use super::Store;
use crate::ids::{NodeId, NONE, ROOT};

/// Returns true if the copies of two runs on a tier differ at most in their ready times.
pub(super) fn are_alike(above: &Copy, below: &Copy) -> bool {
    above.state == below.state
        && above.holds == below.holds
        && match above.state {
            State::Absent => true,
            State::InFlight | State::Waiting => false,
            State::Ready => above.access == below.access,
        }
}

impl Store {
    /// Marks a run that may have become mergeable with a neighbor, for [`Store::join_loose`].
    pub(super) fn loosen(&mut self, id: NodeId) {
        if !self.single_blocks() && self.trie.loose.last() != Some(&id) {
            self.trie.loose.push(id);
        }
    }

    /// Merges the marked runs with their neighbors where they no longer differ. Call it while runs are
    /// referenced by holds only. Cost: constant for each change.
    pub(super) fn join_loose(&mut self) {
        let mut loose = std::mem::take(&mut self.trie.loose);
        for id in loose.drain(..) {
            // it may have been merged or discarded meanwhile; a run that reuses its id is checked in vain
            if self.trie.nodes[id as usize].end > 0 {
                self.join_below(id);
                self.join_above(id);
            }
        }
        self.trie.loose = loose;
    }

    fn join_below(&mut self, id: NodeId) {
        let child = self.trie.nodes[id as usize].first_child;
        if child != NONE {
            self.join_above(child);
        }
    }

    /// Merges a run with those above it. The run keeps its id, and the parents' ids are freed. Returns the
    /// first run above that stays separate.
    pub(super) fn join_above(&mut self, id: NodeId) -> NodeId {
        loop {
            let parent = self.trie.nodes[id as usize].parent;
            if !self.are_alike(parent, id) {
                return parent;
            }
            self.absorb(parent, id);
        }
    }

    /// Merges all mergeable runs of a path.
    pub(super) fn join_path(&mut self, tail: NodeId) {
        if self.single_blocks() {
            return;
        }
        let mut at = tail;
        while at != ROOT {
            at = self.join_above(at);
        }
    }

    /// Returns true if a run and its only child are indistinguishable. All holders of the lower run hold the
    /// upper one too, so equal counts mean that no request holds only the upper one.
    fn are_alike(&self, upper: NodeId, lower: NodeId) -> bool {
        let mut found = false;
        upper != ROOT
            && self.is_only_child(upper, lower)
            && zip(self.copies_of(upper), self.copies_of(lower)).all(|(above, below)| {
                found |= above.state == State::Ready;
                are_alike(above, below)
            })
            && found
    }

    /// Returns true if `lower` is the only child of `upper`, and both runs of blocks have the same users.
    pub(super) fn is_only_child(&self, upper: NodeId, lower: NodeId) -> bool {
        let (above, below) = (
            &self.trie.nodes[upper as usize],
            &self.trie.nodes[lower as usize],
        );
        above.first_child == lower && below.next == NONE && above.uses == below.uses
    }

    /// Extends a run by its equal parent, and removes the parent.
    fn absorb(&mut self, upper: NodeId, lower: NodeId) {
        for tier in 0..self.tiers.len() {
            self.join_time_spans(upper, lower, tier);
            let above = self.copy(upper, tier);
            debug_assert_eq!(above.listed.1, 0, "what has a child there is no candidate");
            self.tiers[tier].evictable -= u64::from(above.evictable);
        }
        let Node {
            owner,
            start: joint,
            ..
        } = self.trie.nodes[lower as usize];
        let Node {
            start,
            parent,
            previous,
            next,
            ..
        } = self.trie.nodes[upper as usize];
        self.free(upper);
        self.trie
            .children
            .remove(&(upper, self.keys.key(owner, joint)));
        self.trie
            .children
            .insert((parent, self.keys.key(owner, start)), lower);
        self.trie.nodes[lower as usize].start = start;
        self.stands_between(parent, lower, previous, next);
        self.refresh(lower);
    }

    /// Prepends the time spans of the upper run's blocks to those of the lower run's.
    fn join_time_spans(&mut self, upper: NodeId, lower: NodeId, tier: usize) {
        let above = *self.copy(upper, tier);
        if above.state == State::Ready {
            let end = self.trie.nodes[upper as usize].end;
            let times = above.times;
            let before = std::mem::take(self.time_spans_mut(upper, tier));
            self.prepend_time_spans(lower, tier, before, TimeSpan { end, times });
        }
    }

    /// Prepends time spans to a copy's own: the spans of blocks that now begin the run, and the last of them.
    pub(super) fn prepend_time_spans(
        &mut self,
        run: NodeId,
        tier: usize,
        mut before: Vec<TimeSpan>,
        last: TimeSpan,
    ) {
        let own = std::mem::take(self.time_spans_mut(run, tier));
        let first = own.first().map_or(self.copy(run, tier).times, |s| s.times);
        if last.times != first {
            before.push(last);
        }
        if before.is_empty() {
            before = own;
        } else {
            before.extend(own);
        }
        *self.time_spans_mut(run, tier) = before;
    }
}

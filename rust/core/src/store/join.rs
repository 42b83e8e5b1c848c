//! Runs become one again: what a write, an eviction or a step parted is one run once its blocks differ in nothing.
//!
//! Without it a block that is written down alone, or leaves alone, stays a run of its own for good: a decode stretch
//! would be as many runs as it has blocks, and whoever holds its end would count on each of them.

use super::node::{NodeId, State, NONE, ROOT};
use super::times::Stretch;
use super::Store;

impl Store {
    /// Remembers a run that has come to differ less from its neighbours, for [`Store::join_loose`].
    pub(super) fn loosen(&mut self, id: NodeId) {
        if !self.single_blocks() && self.loose.last() != Some(&id) {
            self.loose.push(id);
        }
    }

    /// Joins the runs that changed with their neighbours, where nothing tells them apart any more. Call it where no
    /// run is named but by holds. Cost: constant for each change.
    pub(super) fn join_loose(&mut self) {
        let mut loose = std::mem::take(&mut self.loose);
        for id in loose.drain(..) {
            // it may have been joined or discarded meanwhile; a run that took its place is looked at in vain
            if self.nodes[id as usize].end > 0 {
                self.join_below(id);
                self.join_above(id);
            }
        }
        self.loose = loose;
    }

    fn join_below(&mut self, id: NodeId) {
        let child = self.nodes[id as usize].first_child;
        if child != NONE {
            self.join_above(child);
        }
    }

    /// Joins a run with those above it; it keeps its id, and the parent's is free. Returns the first one above it
    /// that stays apart.
    pub(super) fn join_above(&mut self, id: NodeId) -> NodeId {
        loop {
            let parent = self.nodes[id as usize].parent;
            if !self.are_alike(parent, id) {
                return parent;
            }
            self.absorb(parent, id);
        }
    }

    /// Joins all runs of a path, where it can be.
    pub(super) fn join_path(&mut self, tail: NodeId) {
        if self.single_blocks() {
            return;
        }
        let mut at = tail;
        while at != ROOT {
            at = self.join_above(at);
        }
    }

    /// Whether nobody could tell where a run ends and its only child begins. Who names the upper run holds it beside
    /// all that hold the lower one, so that equal counts mean that nobody does.
    fn are_alike(&self, upper: NodeId, lower: NodeId) -> bool {
        if upper == ROOT {
            return false;
        }
        let (above, below) = (&self.nodes[upper as usize], &self.nodes[lower as usize]);
        if above.first_child != lower || below.next != NONE || above.uses != below.uses {
            return false;
        }
        let mut found = false;
        for (above, below) in self.copies_of(upper).iter().zip(self.copies_of(lower)) {
            let alike = above.state == below.state && above.holds == below.holds;
            let alike = match above.state {
                State::Absent => alike,
                State::InFlight => false,
                State::Ready => alike && above.access == below.access,
            };
            if !alike {
                return false;
            }
            found |= above.state == State::Ready;
        }
        found
    }

    /// Lets a run begin where its parent, which is like it, begins, and the parent go.
    fn absorb(&mut self, upper: NodeId, lower: NodeId) {
        for tier in 0..self.tiers.len() {
            self.join_stretches(upper, lower, tier);
            let above = self.copy(upper, tier);
            debug_assert_eq!(above.listed.1, 0, "what has a child there is no candidate");
            self.tiers[tier].evictable -= u64::from(above.evictable);
        }
        let (owner, joint) = (
            self.nodes[lower as usize].owner,
            self.nodes[lower as usize].start,
        );
        let upper_node = &self.nodes[upper as usize];
        let (start, parent) = (upper_node.start, upper_node.parent);
        let (previous, next) = (upper_node.previous, upper_node.next);
        self.free(upper);
        self.children.remove(&(upper, self.keys.key(owner, joint)));
        self.children
            .insert((parent, self.keys.key(owner, start)), lower);
        if previous == NONE {
            self.nodes[parent as usize].first_child = lower;
        } else {
            self.nodes[previous as usize].next = lower;
        }
        if next != NONE {
            self.nodes[next as usize].previous = lower;
        }
        let node = &mut self.nodes[lower as usize];
        (node.start, node.parent) = (start, parent);
        (node.previous, node.next) = (previous, next);
        self.refresh(lower);
    }

    /// Puts the times of the upper run's blocks before those of the lower one's.
    fn join_stretches(&mut self, upper: NodeId, lower: NodeId, tier: usize) {
        let above = *self.copy(upper, tier);
        if above.state != State::Ready {
            return;
        }
        let end = self.nodes[upper as usize].end;
        let after = std::mem::take(self.stretches_mut(lower, tier));
        let first = after
            .first()
            .map_or(self.copy(lower, tier).times, |s| s.times);
        let mut all = std::mem::take(self.stretches_mut(upper, tier));
        if above.times != first {
            let times = above.times;
            all.push(Stretch { end, times });
        }
        if all.is_empty() {
            all = after;
        } else {
            all.extend(after);
        }
        *self.stretches_mut(lower, tier) = all;
    }
}

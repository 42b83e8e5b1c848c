//! Runs become one again: what a write, an eviction or a step parted is one run once its blocks differ in nothing.
//!
//! Without it a block that is written down alone, or leaves alone, stays a run of its own for good: a decode stretch
//! would be as many runs as it has blocks, and whoever holds its end would count on each of them.

use std::iter::zip;

use super::node::{Copy, Node, State};
use super::times::TimeSpan;
use super::Store;
use crate::ids::{NodeId, NONE, ROOT};

/// Whether nothing tells the copies of two runs on a tier apart but when they were ready.
pub(super) fn are_alike(above: &Copy, below: &Copy) -> bool {
    above.state == below.state
        && above.holds == below.holds
        && match above.state {
            State::Absent => true,
            State::InFlight => false,
            State::Ready => above.access == below.access,
        }
}

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
        let mut found = false;
        upper != ROOT
            && self.is_only_child(upper, lower)
            && zip(self.copies_of(upper), self.copies_of(lower)).all(|(above, below)| {
                found |= above.state == State::Ready;
                are_alike(above, below)
            })
            && found
    }

    /// Whether nothing else follows a run, and who used one used the other.
    pub(super) fn is_only_child(&self, upper: NodeId, lower: NodeId) -> bool {
        let (above, below) = (&self.nodes[upper as usize], &self.nodes[lower as usize]);
        above.first_child == lower && below.next == NONE && above.uses == below.uses
    }

    /// Lets a run begin where its parent, which is like it, begins, and the parent go.
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
        } = self.nodes[lower as usize];
        let Node {
            start,
            parent,
            previous,
            next,
            ..
        } = self.nodes[upper as usize];
        self.free(upper);
        self.children.remove(&(upper, self.keys.key(owner, joint)));
        self.children
            .insert((parent, self.keys.key(owner, start)), lower);
        self.nodes[lower as usize].start = start;
        self.stands_between(parent, lower, (previous, next));
        self.refresh(lower);
    }

    /// Puts the times of the upper run's blocks before those of the lower one's.
    fn join_time_spans(&mut self, upper: NodeId, lower: NodeId, tier: usize) {
        let above = *self.copy(upper, tier);
        if above.state == State::Ready {
            let end = self.nodes[upper as usize].end;
            let times = above.times;
            let before = std::mem::take(self.time_spans_mut(upper, tier));
            self.prepend_time_spans(lower, tier, before, TimeSpan { end, times });
        }
    }

    /// Puts the times of blocks that now begin a run before those of its own: their stretches, and their last one.
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

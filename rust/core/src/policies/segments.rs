//! Segments of recency, lowest first: a use lifts a block one segment, and overflow falls one segment.

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;

/// The first segments of `N` queues, each with a capacity in blocks; further queues belong to the policy.
#[derive(Debug)]
pub struct Segments<const N: usize> {
    /// All queues; number k is segment k, the least recent block at its back.
    pub queues: Queues<N>,
    segment_blocks: Vec<usize>,
    /// True if a block fell into the lowest segment, which may exceed its capacity now.
    has_fallen: bool,
}

impl<const N: usize> Segments<N> {
    /// Empty segments with these capacities, lowest first.
    pub fn new(segment_blocks: Vec<usize>, universe: usize) -> Self {
        assert!(segment_blocks.len() <= N, "every segment is a queue");
        Self {
            queues: Queues::new(universe),
            segment_blocks,
            has_fallen: false,
        }
    }

    /// Blocks in all segments.
    pub fn blocks(&self) -> usize {
        (0..self.segment_blocks.len())
            .map(|segment| self.queues.len(segment))
            .sum()
    }

    /// Return the least recent evictable block of the lowest segment that has one.
    pub fn victim(&mut self, may_go: &MayGo) -> Option<u32> {
        (0..self.segment_blocks.len()).find_map(|segment| self.queues.last_free(segment, may_go))
    }
}

/// A policy of segments only.
impl<const N: usize> ObjectPolicy for Segments<N> {
    fn contains(&self, block: u32) -> bool {
        self.queues.queue_of(block).is_some()
    }

    /// Lift a block one segment; the least recent block of each full segment falls one segment.
    fn on_hit(&mut self, block: u32) {
        let Some(from) = self.queues.queue_of(block) else {
            return;
        };
        let mut segment = (from + 1).min(self.segment_blocks.len() - 1);
        self.queues.move_to(segment, block);
        while segment > 0 && self.queues.len(segment) > self.segment_blocks[segment] {
            let Some(falls) = self.queues.back(segment) else {
                return;
            };
            segment -= 1;
            self.queues.move_to(segment, falls);
            self.has_fallen = segment == 0;
        }
    }

    /// Put a new block into the lowest segment with capacity, or into the lowest segment.
    fn insert(&mut self, block: u32) {
        let has_space = |&segment: &usize| self.queues.len(segment) < self.segment_blocks[segment];
        let segment = (0..self.segment_blocks.len()).find(has_space).unwrap_or(0);
        self.queues.push_front(segment, block);
    }

    fn freed(&mut self, block: Option<u32>) {
        self.queues.freed(block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        let victim = self.victim(may_go)?;
        self.queues.unlink(victim);
        Some(victim)
    }

    /// Remove the least recent evictable block of the lowest segment, if a block has fallen into it and it
    /// exceeds its capacity. This happens if the segments' capacities do not add up to the whole capacity.
    fn abort(&mut self, may_go: &MayGo) -> Option<u32> {
        if !self.has_fallen {
            return None;
        }
        if self.queues.len(0) <= self.segment_blocks[0] {
            self.has_fallen = false;
            return None;
        }
        self.queues.take_last_that(0, may_go)
    }

    fn aborts(&self) -> bool {
        true
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            self.queues.unlink(block);
        }
    }
}

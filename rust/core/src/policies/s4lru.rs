//! S4LRU: four segments of recency, of which each use climbs one (Huang et al., SOSP 2013).

use super::object::{MayGo, ObjectPolicy};
use super::segments::Segments;
use super::{NativePolicy, Room};

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("s4lru", |_, room| Box::new(S4Lru::new(room)));

/// Four quarters of the room, rounded down; what four does not divide is the lowest segment's until a block
/// falls into it. A newcomer takes the lowest segment with room, so an empty cache fills from below: both are
/// libCacheSim's rules.
#[derive(Debug)]
pub struct S4Lru {
    segments: Segments<4>,
}

impl S4Lru {
    /// Nothing is resident.
    pub fn new(room: Room) -> Self {
        let quarter = room.capacity / 4;
        Self {
            segments: Segments::new(vec![quarter; 4], room.universe),
        }
    }
}

impl ObjectPolicy for S4Lru {
    fn contains(&self, block: u32) -> bool {
        self.segments.contains(block)
    }

    fn on_hit(&mut self, block: u32) {
        self.segments.lift(block);
    }

    fn insert(&mut self, block: u32) {
        self.segments.insert(block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        let victim = self.segments.victim(may_go)?;
        self.segments.queues.unlink(victim);
        Some(victim)
    }

    fn give_up(&mut self, may_go: &MayGo) -> Option<u32> {
        self.segments.spill(may_go)
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            self.segments.queues.unlink(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};

    /// a to d fill the four segments from below. a climbs, so b falls in its place, and e takes b's; then c
    /// climbs and d falls.
    #[test]
    fn a_use_climbs_one_segment_and_another_falls() {
        let left = who_leaves(&POLICY, &plain(), 4, "a b c d a e f c g");
        assert_eq!(left, "b e f");
    }

    /// Five blocks: the lowest segment takes the fifth, e, until b falls into it: then a is one too many.
    #[test]
    fn what_four_does_not_divide_is_given_up_when_a_block_falls() {
        let left = who_leaves(&POLICY, &plain(), 5, "a b c d e e f");
        assert_eq!(left, "a");
    }
}

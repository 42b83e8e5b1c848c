//! Segmented LRU: what is used again is protected; what falls out of protection gets another round (Karedla et al. 1994).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("slru", |_, room| {
    Box::new(Slru::new(room.capacity, room.universe))
});

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

/// Four fifths of the room may be protected.
#[derive(Debug)]
pub struct Slru {
    queues: Queues<2>,
    protected_blocks: usize,
}

impl Slru {
    /// Nothing is resident.
    pub fn new(capacity: usize, universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
            protected_blocks: capacity - capacity.div_ceil(5),
        }
    }
}

impl ObjectPolicy for Slru {
    fn contains(&self, block: u32) -> bool {
        self.queues.place(block).is_some()
    }

    fn on_hit(&mut self, block: u32) {
        self.queues.move_to(PROTECTED, block);
        if self.queues.len(PROTECTED) > self.protected_blocks {
            if let Some(demoted) = self.queues.back(PROTECTED) {
                self.queues.move_to(PROBATION, demoted);
            }
        }
    }

    fn insert(&mut self, block: u32) {
        self.queues.push_front(PROBATION, block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        let victim = self
            .queues
            .last_that(PROBATION, may_go)
            .or_else(|| self.queues.last_that(PROTECTED, may_go))?;
        self.queues.unlink(victim);
        Some(victim)
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            self.queues.unlink(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};

    /// a was used twice, so b goes, although a was used longer ago.
    #[test]
    fn what_was_used_again_is_protected() {
        let left = who_leaves(&POLICY, &plain(), 5, "a a b c d e f");
        assert_eq!(left, "b");
    }

    /// Five blocks are used twice; the first of them falls back on probation and goes.
    #[test]
    fn protection_is_for_four_fifths() {
        let left = who_leaves(&POLICY, &plain(), 5, "a a b b c c d d e e f");
        assert_eq!(left, "a");
    }
}

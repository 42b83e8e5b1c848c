//! Segmented LRU: what is used again is protected; what falls out of protection gets another round (Karedla et al. 1994).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

/// Four fifths of the room may be protected.
#[derive(Debug)]
pub struct Slru {
    queues: Queues<2>,
    protected_blocks: usize,
}

impl Slru {
    pub fn new(capacity: usize, universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
            protected_blocks: capacity * 4 / 5,
        }
    }
}

impl ObjectPolicy for Slru {
    fn contains(&self, block: u32) -> bool {
        self.queues.place(block).is_some()
    }

    fn on_hit(&mut self, block: u32) {
        self.queues.unlink(block);
        self.queues.push_front(PROTECTED, block);
        if self.queues.len(PROTECTED) > self.protected_blocks {
            if let Some(demoted) = self.queues.back(PROTECTED) {
                self.queues.unlink(demoted);
                self.queues.push_front(PROBATION, demoted);
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

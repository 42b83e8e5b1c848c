//! First in, first out: the block inserted first, whatever its use (Belady 1966).

use super::leaf::{Facts, Key, LeafPolicy};
use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;

#[derive(Debug, Clone, Copy)]
pub struct Fifo;

impl LeafPolicy for Fifo {
    fn key(&self, facts: &Facts) -> Key {
        (facts.created, 0)
    }
}

/// The same on single blocks: one queue, front newest.
#[derive(Debug)]
pub struct FifoQueue {
    queues: Queues<1>,
}

impl FifoQueue {
    pub fn new(universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
        }
    }
}

impl ObjectPolicy for FifoQueue {
    fn contains(&self, block: u32) -> bool {
        self.queues.place(block).is_some()
    }

    fn on_hit(&mut self, _block: u32) {}

    fn insert(&mut self, block: u32) {
        self.queues.push_front(0, block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        let victim = self.queues.last_that(0, may_go)?;
        self.queues.unlink(victim);
        Some(victim)
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            self.queues.unlink(block);
        }
    }
}

//! Least recently used: the block whose last use is longest ago (Mattson et al. 1970).

use super::leaf::{Facts, Key, LeafPolicy};
use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;

#[derive(Debug, Clone, Copy)]
pub struct Lru;

impl LeafPolicy for Lru {
    fn key(&self, facts: &Facts) -> Key {
        (facts.last_access, 0)
    }
}

/// The same on single blocks: one list, front most recent.
#[derive(Debug)]
pub struct LruQueue {
    queues: Queues<1>,
}

impl LruQueue {
    pub fn new(universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
        }
    }
}

impl ObjectPolicy for LruQueue {
    fn contains(&self, block: u32) -> bool {
        self.queues.place(block).is_some()
    }

    fn on_hit(&mut self, block: u32) {
        self.queues.unlink(block);
        self.queues.push_front(0, block);
    }

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

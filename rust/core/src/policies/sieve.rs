//! SIEVE: one queue, a visited bit, a hand that moves from old to new and stays where it was (Zhang et al. 2024).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;

/// A block that may not go is passed over like a visited one: its bit is cleared.
#[derive(Debug)]
pub struct Sieve {
    queues: Queues<1>,
    hand: Option<u32>,
}

impl Sieve {
    pub fn new(universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
            hand: None,
        }
    }
}

impl ObjectPolicy for Sieve {
    fn contains(&self, block: u32) -> bool {
        self.queues.place(block).is_some()
    }

    fn on_hit(&mut self, block: u32) {
        *self.queues.mark(block) = 1;
    }

    fn insert(&mut self, block: u32) {
        self.queues.push_front(0, block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        // two rounds clear every bit; a third can find nothing new
        for _ in 0..3 * self.queues.len(0) {
            let at = self.hand.or_else(|| self.queues.back(0))?;
            self.hand = self.queues.ahead(at);
            let visited = std::mem::take(self.queues.mark(at));
            if visited == 0 && may_go(at) {
                self.queues.unlink(at);
                return Some(at);
            }
        }
        None
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            if self.hand == Some(block) {
                self.hand = self.queues.ahead(block);
            }
            self.queues.unlink(block);
        }
    }
}

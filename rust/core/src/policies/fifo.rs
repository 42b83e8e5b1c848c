//! First in, first out: the block inserted first, whatever its use (Belady 1966).

use super::leaf::{Facts, Key, LeafPolicy};
use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("fifo", |_| Box::new(Fifo))
    .with_queues(|_, room| Box::new(FifoQueue::new(room.universe)));

/// The policy as a key.

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
    /// Nothing is resident.
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
        self.queues.take_last_that(0, may_go)
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

    /// The use of a does not help it.
    #[test]
    fn the_first_to_come_is_the_first_to_go() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b c a d e");
        assert_eq!(left, "a b");
    }

    /// The queue of a plain cache and the ranked blocks decide alike.
    #[test]
    fn the_queue_decides_as_the_key_does() {
        let ranked = NativePolicy::ranked("fifo", |_| Box::new(Fifo));
        let accesses = "a b c a d b e a c d f a b";
        let left = who_leaves(&POLICY, &plain(), 3, accesses);
        assert_eq!(left, who_leaves(&ranked, &plain(), 3, accesses));
    }
}

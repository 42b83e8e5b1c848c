//! Least recently used: the block whose last use is longest ago (Mattson et al. 1970).

use super::leaf::{Facts, Key, LeafPolicy};
use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("lru", |_| Box::new(Lru))
    .with_queues(|_, room| Box::new(LruQueue::new(room.universe)));

/// The policy as a key.

#[derive(Debug, Clone, Copy)]
pub struct Lru;

impl LeafPolicy for Lru {
    fn key(&self, facts: &Facts) -> Key {
        (facts.last_access, 0)
    }
}

/// The same on single blocks: one list, front most recent.
///
/// ```
/// use kvsim_core::policies::{lru::LruQueue, object::ObjectPolicy};
///
/// let mut cache = LruQueue::new(3);
/// cache.insert(0);
/// cache.insert(1);
/// cache.on_hit(0);
/// assert_eq!(cache.evict(2, &|_| true), Some(1));
/// ```
#[derive(Debug)]
pub struct LruQueue {
    queues: Queues<1>,
}

impl LruQueue {
    /// Nothing is resident.
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
        self.queues.move_to(0, block);
    }

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

    /// a was used after b and c.
    #[test]
    fn a_use_renews_a_block() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b c a d e");
        assert_eq!(left, "b c");
    }

    /// The queue of a plain cache and the ranked blocks decide alike.
    #[test]
    fn the_queue_decides_as_the_key_does() {
        let ranked = NativePolicy::ranked("lru", |_| Box::new(Lru));
        let accesses = "a b c a d b e a c d f a b";
        let left = who_leaves(&POLICY, &plain(), 3, accesses);
        assert_eq!(left, who_leaves(&ranked, &plain(), 3, accesses));
    }
}

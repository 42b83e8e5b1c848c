//! SIEVE: one queue, a visited bit, a hand that moves from old to new and stays where it was (Zhang et al. 2024).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("sieve", |_, room| Box::new(Sieve::new(room.universe)));

/// A block that may not go is passed over like a visited one: its bit is cleared.
#[derive(Debug)]
pub struct Sieve {
    queues: Queues<1>,
    hand: Option<u32>,
}

impl Sieve {
    /// Nothing is resident.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};

    /// a was used and stays in its place behind the hand, which goes on to newer blocks.
    #[test]
    fn the_hand_stays_where_it_was() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b c a d e f");
        assert_eq!(left, "b c d");
    }
}

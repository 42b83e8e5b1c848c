//! CLOCK: first in, first out, with a second chance for what was used (Corbató 1968).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("clock", |_, room| Box::new(Clock::new(room.universe)));

/// A block that may not go is passed over like a used one: back to the front, its bit cleared.
#[derive(Debug)]
pub struct Clock {
    queues: Queues<1>,
}

impl Clock {
    /// Nothing is resident.
    pub fn new(universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
        }
    }
}

impl ObjectPolicy for Clock {
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
        for _ in 0..3 * self.queues.len(0) {
            let at = self.queues.back(0)?;
            let used = *self.queues.mark(at);
            self.queues.unlink(at);
            if used == 0 && may_go(at) {
                return Some(at);
            }
            self.queues.push_front(0, at);
        }
        None
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

    /// a was used and goes round once more; then, unused since, it is the oldest.
    #[test]
    fn a_used_block_gets_a_second_round() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b c a d e f");
        assert_eq!(left, "b c a");
    }
}

//! 2Q: newcomers queue, what returns after it left the queue is kept by recency (Johnson and Shasha, VLDB 1994).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::{NativePolicy, Room};

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("twoq", |_, room| Box::new(TwoQ::new(room)));

/// Newcomers, first in first out; names of those that left it; and what returned, by recency.
const IN: usize = 0;
const OUT: usize = 1;
const MAIN: usize = 2;

/// A quarter of the room is for newcomers, and the names of half of it are remembered (libCacheSim's shares).
/// A use among the newcomers moves nothing. Where the victim's list has none that may go, the other's goes.
#[derive(Debug)]
pub struct TwoQ {
    queues: Queues<3>,
    in_blocks: usize,
    out_names: usize,
    returned: bool,
}

impl TwoQ {
    /// Nothing is resident and nothing remembered.
    pub fn new(room: Room) -> Self {
        Self {
            queues: Queues::new(room.universe),
            in_blocks: room.capacity / 4,
            out_names: room.capacity / 2,
            returned: false,
        }
    }

    fn evict_newcomer(&mut self, may_go: &MayGo) -> Option<u32> {
        let victim = self.queues.last_that(IN, may_go)?;
        self.queues.move_to(OUT, victim);
        if self.queues.len(OUT) > self.out_names {
            let oldest = self.queues.back(OUT)?;
            self.queues.unlink(oldest);
        }
        Some(victim)
    }

    fn evict_main(&mut self, may_go: &MayGo) -> Option<u32> {
        self.queues.take_last_that(MAIN, may_go)
    }
}

impl ObjectPolicy for TwoQ {
    fn contains(&self, block: u32) -> bool {
        matches!(self.queues.place(block), Some(IN | MAIN))
    }

    fn on_hit(&mut self, block: u32) {
        if self.queues.place(block) == Some(MAIN) {
            self.queues.move_to(MAIN, block);
        }
    }

    fn on_miss(&mut self, block: u32) {
        self.returned = self.queues.place(block).is_some();
        if self.returned {
            self.queues.unlink(block);
        }
    }

    fn insert(&mut self, block: u32) {
        let queue = if self.returned { MAIN } else { IN };
        self.queues.push_front(queue, block);
        self.returned = false;
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        if self.queues.len(IN) > self.in_blocks {
            self.evict_newcomer(may_go)
                .or_else(|| self.evict_main(may_go))
        } else {
            self.evict_main(may_go)
                .or_else(|| self.evict_newcomer(may_go))
        }
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

    /// Room for four, one of them for newcomers: a returns to the main queue while its name is known, and
    /// the newcomers go one by one, however often they were used.
    #[test]
    fn what_returns_is_kept_and_uses_among_newcomers_count_nothing() {
        let left = who_leaves(&POLICY, &plain(), 4, "a b c d e a b b f g");
        assert_eq!(left, "a b c d e");
    }

    /// Two names are remembered: a's is forgotten when c leaves, so a comes back as a newcomer and goes again.
    #[test]
    fn a_forgotten_name_is_a_newcomer() {
        let left = who_leaves(&POLICY, &plain(), 4, "a b c d e f g a h i j k");
        assert_eq!(left, "a b c d e f g a");
    }
}

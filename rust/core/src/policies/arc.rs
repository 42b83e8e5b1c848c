//! Adaptive replacement: recency and frequency share the room, ghosts move the border (Megiddo and Modha 2003).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("arc", |_, room| {
    Box::new(Arc::new(room.capacity, room.universe))
});

/// Used once and used again, resident; and the names of what left each.
const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// The published algorithm; the paper's cases are named where they stand. Where the victim of a list may
/// not go, the next older that may is taken, then the other list's.
#[derive(Debug)]
pub struct Arc {
    queues: Queues<4>,
    capacity: usize,
    /// Blocks that `T1` should have (p of the paper, a real number).
    target: f64,
    /// Where the block being inserted was a ghost.
    ghost: Option<usize>,
}

impl Arc {
    /// Nothing is resident and nothing remembered.
    pub fn new(capacity: usize, universe: usize) -> Self {
        Self {
            queues: Queues::new(universe),
            capacity,
            target: 0.0,
            ghost: None,
        }
    }

    fn len(&self, queue: usize) -> usize {
        self.queues.len(queue)
    }

    fn drop_last(&mut self, queue: usize) {
        if let Some(block) = self.queues.back(queue) {
            self.queues.unlink(block);
        }
    }

    /// REPLACE of the paper: the victim's name goes to the ghosts of its list.
    fn replace(&mut self, may_go: &MayGo) -> Option<u32> {
        let t1 = self.len(T1) as f64;
        let over = t1 > self.target || (t1 == self.target && self.ghost == Some(B2));
        let order = if self.len(T1) > 0 && over {
            [T1, T2]
        } else {
            [T2, T1]
        };
        for list in order {
            if let Some(victim) = self.queues.last_that(list, may_go) {
                self.queues.unlink(victim);
                self.queues
                    .push_front(if list == T1 { B1 } else { B2 }, victim);
                return Some(victim);
            }
        }
        None
    }
}

impl ObjectPolicy for Arc {
    fn contains(&self, block: u32) -> bool {
        matches!(self.queues.place(block), Some(T1 | T2))
    }

    /// Case I.
    fn on_hit(&mut self, block: u32) {
        self.queues.move_to(T2, block);
    }

    fn on_miss(&mut self, block: u32) {
        self.ghost = self.queues.place(block);
        let (b1, b2) = (self.len(B1) as f64, self.len(B2) as f64);
        match self.ghost {
            // case II
            Some(B1) => self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64),
            // case III
            Some(_) => self.target = (self.target - (b1 / b2).max(1.0)).max(0.0),
            // case IV: the directory forgets
            None if self.len(T1) + self.len(B1) >= self.capacity => self.drop_last(B1),
            None => {
                let known: usize = (T1..=B2).map(|list| self.len(list)).sum();
                if known >= 2 * self.capacity {
                    self.drop_last(B2);
                }
            }
        }
        if self.ghost.is_some() {
            self.queues.unlink(block);
        }
    }

    fn insert(&mut self, block: u32) {
        self.queues
            .push_front(if self.ghost.is_some() { T2 } else { T1 }, block);
        self.ghost = None;
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        if self.ghost.is_none() && self.len(T1) >= self.capacity {
            // case IV A with no ghosts left: the victim leaves no name
            let victim = self.queues.take_last_that(T1, may_go)?;
            return Some(victim);
        }
        self.replace(may_go)
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

    /// b leaves and comes back: recency has earned a place, so a goes although it was used twice.
    #[test]
    fn a_ghost_that_returns_moves_the_border() {
        let left = who_leaves(&POLICY, &plain(), 2, "a a b c b");
        assert_eq!(left, "b a");
    }

    /// A scan of new blocks passes by a, which was used twice.
    #[test]
    fn what_came_once_goes_before_what_came_again() {
        let left = who_leaves(&POLICY, &plain(), 3, "a a b c d e");
        assert_eq!(left, "b c");
    }
}

//! S3-FIFO: a small queue sifts out what comes once, a main queue with second chances, ghosts (Yang et al. 2023).

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("s3fifo", |_, room| {
    Box::new(S3Fifo::new(room.capacity, room.universe))
});

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Uses after insertion with which a block moves from the small to the main queue.
const PROMOTE: u8 = 2;
const MOST_USES: u8 = 3;

/// A tenth of the room is small, ghosts for nine tenths. Until the first eviction a full small queue passes
/// new blocks to the main one (a rule of libCacheSim; the paper leaves the warm-up open).
/// A block that may not go is passed over: back to the front of its queue.
#[derive(Debug)]
pub struct S3Fifo {
    queues: Queues<3>,
    small_blocks: usize,
    main_blocks: usize,
    ghosts: usize,
    was_ghost: bool,
    has_evicted: bool,
}

impl S3Fifo {
    /// Nothing is resident and nothing remembered.
    pub fn new(capacity: usize, universe: usize) -> Self {
        let small_blocks = capacity / 10;
        Self {
            queues: Queues::new(universe),
            small_blocks,
            main_blocks: capacity - small_blocks,
            ghosts: capacity - capacity.div_ceil(10),
            was_ghost: false,
            has_evicted: false,
        }
    }

    fn evict_small(&mut self, may_go: &MayGo) -> Option<u32> {
        for _ in 0..self.queues.len(SMALL) {
            let at = self.queues.back(SMALL)?;
            let uses = *self.queues.mark(at);
            self.queues.unlink(at);
            if uses >= PROMOTE {
                self.queues.push_front(MAIN, at);
            } else if may_go(at) {
                self.queues.push_front(GHOST, at);
                if self.queues.len(GHOST) > self.ghosts {
                    let oldest = self.queues.back(GHOST)?;
                    self.queues.unlink(oldest);
                }
                return Some(at);
            } else {
                self.queues.push_front(SMALL, at);
                *self.queues.mark(at) = uses;
            }
        }
        None
    }

    fn evict_main(&mut self, may_go: &MayGo) -> Option<u32> {
        for _ in 0..(usize::from(MOST_USES) + 2) * self.queues.len(MAIN) {
            let at = self.queues.back(MAIN)?;
            let uses = (*self.queues.mark(at)).min(MOST_USES);
            self.queues.unlink(at);
            if uses == 0 && may_go(at) {
                return Some(at);
            }
            self.queues.push_front(MAIN, at);
            *self.queues.mark(at) = uses.saturating_sub(1);
        }
        None
    }
}

impl ObjectPolicy for S3Fifo {
    fn contains(&self, block: u32) -> bool {
        matches!(self.queues.place(block), Some(SMALL | MAIN))
    }

    fn on_hit(&mut self, block: u32) {
        let uses = self.queues.mark(block);
        *uses = uses.saturating_add(1);
    }

    fn on_miss(&mut self, block: u32) {
        self.was_ghost = self.queues.place(block).is_some();
        if self.was_ghost {
            self.queues.unlink(block);
        }
    }

    fn insert(&mut self, block: u32) {
        let warm_up = !self.has_evicted && self.queues.len(SMALL) >= self.small_blocks;
        let queue = if self.was_ghost || warm_up {
            MAIN
        } else {
            SMALL
        };
        self.queues.push_front(queue, block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        self.has_evicted = true;
        if self.queues.len(MAIN) > self.main_blocks || self.queues.len(SMALL) == 0 {
            self.evict_main(may_go).or_else(|| self.evict_small(may_go))
        } else {
            // what the small queue only promoted has made no room yet
            self.evict_small(may_go).or_else(|| self.evict_main(may_go))
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

    /// Room for ten: one small (a), nine main (b to j). k, l and m each push out the small one before them.
    #[test]
    fn what_comes_once_is_sifted_out() {
        let left = who_leaves(&POLICY, &plain(), 10, "a b c d e f g h i j k l m");
        assert_eq!(left, "a k l");
    }

    /// a comes back while its name is remembered: the main queue holds one too many, and its oldest goes next.
    #[test]
    fn a_ghost_returns_to_the_main_queue() {
        let left = who_leaves(&POLICY, &plain(), 10, "a b c d e f g h i j k l a m");
        assert_eq!(left, "a k l b");
    }

    /// a was used twice: it moves to the main queue, whose oldest, b, goes.
    #[test]
    fn two_uses_in_the_small_queue_are_a_promotion() {
        let left = who_leaves(&POLICY, &plain(), 10, "a a a b c d e f g h i j k");
        assert_eq!(left, "b");
    }
}

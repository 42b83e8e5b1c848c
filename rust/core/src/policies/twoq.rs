//! 2Q: new blocks queue; blocks that return after leaving that queue are kept by recency.
//!
//! What it does: New blocks join a FIFO queue, in which a use has no influence. The names of blocks evicted from it
//! are kept, up to half the capacity; a block that returns while its name is kept joins the main list, by recency.
//! Evict the oldest block of the queue if it has more than a quarter of the capacity, else the main list's least
//! recent.
//!
//! Why: A reuse inside one burst does not count as a reuse: a block has to return later.
//!
//! Example: Of 4 blocks, `a b c d e a b b f g` evicts `a b c d e`: a and b return while their names are kept; new
//! blocks leave one by one.
//!
//! Source: Johnson and Shasha, 2Q, VLDB 1994.

use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::{Bounds, NativePolicy};

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("twoq", |_, bounds| bounds.queues(TwoQ::new(bounds)));

/// Indices of the queues: new blocks, first in first out; ghosts of blocks that left that queue; returned
/// blocks, by recency.
const IN: usize = 0;
const OUT: usize = 1;
const MAIN: usize = 2;

/// A quarter of the capacity is for new blocks, and ghosts are remembered for half of it (libCacheSim's
/// shares). A use of a new block moves nothing. If a victim's list has no evictable block, the other list's
/// is taken.
#[derive(Debug)]
pub struct TwoQ {
    in_blocks: usize,
    out_names: usize,
    returned: bool,
}

impl TwoQ {
    /// A policy without resident blocks and ghosts.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            in_blocks: bounds.capacity / 4,
            out_names: bounds.capacity / 2,
            returned: false,
        }
    }

    fn evict_newcomer(&self, queues: &mut Queues<3>, may_go: &MayGo) -> Option<u32> {
        let victim = queues.last_free(IN, may_go)?;
        queues.move_to(OUT, victim);
        if queues.len(OUT) > self.out_names {
            queues.drop_last(OUT);
        }
        Some(victim)
    }
}

impl QueueRule<3> for TwoQ {
    fn is_resident(queue: usize) -> bool {
        queue != OUT
    }

    fn on_hit(&mut self, queues: &mut Queues<3>, block: u32) {
        if queues.queue_of(block) == Some(MAIN) {
            queues.move_to(MAIN, block);
        }
    }

    fn on_miss(&mut self, queues: &mut Queues<3>, block: u32) {
        self.returned = queues.queue_of(block).is_some();
        if self.returned {
            queues.unlink(block);
        }
    }

    fn insert(&mut self, queues: &mut Queues<3>, block: u32) {
        let returned = std::mem::take(&mut self.returned);
        queues.push_front(if returned { MAIN } else { IN }, block);
    }

    fn evict(&mut self, queues: &mut Queues<3>, may_go: &MayGo) -> Option<u32> {
        if queues.len(IN) > self.in_blocks {
            let newcomer = self.evict_newcomer(queues, may_go);
            newcomer.or_else(|| queues.take_last_that(MAIN, may_go))
        } else {
            let kept = queues.take_last_that(MAIN, may_go);
            kept.or_else(|| self.evict_newcomer(queues, may_go))
        }
    }
}

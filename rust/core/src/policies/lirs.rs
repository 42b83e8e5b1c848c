//! LIRS: keeps blocks with a short distance between their last two uses.
//!
//! What it does: A stack keeps blocks and the names of evicted ones by recency. A block that is used while the
//! stack has its name has a short reuse distance and is kept; others are in a queue of a hundredth of the capacity.
//! Evict the queue's oldest, else the kept block nearest to the stack's bottom. Departures from the paper are
//! libCacheSim 0.3.5's.
//!
//! Why: A loop longer than the cache makes `lru` miss every block; here a part of the loop stays.
//!
//! Example: Of 3 blocks, `a b c d e` evicts `c d`: a and b are kept; c and d pass through the queue.
//!
//! Source: Jiang and Zhang, LIRS, SIGMETRICS 2002; departures are libCacheSim 0.3.5's.

use super::object::{MayGo, ObjectPolicy};
use super::queues::Queues;
use super::{Bounds, NativePolicy};

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("lirs", |_, bounds| Box::new(Lirs::new(bounds)));

/// Queues of blocks of high inter-reference recency: resident blocks, and ghosts (names of evicted blocks).
const RESIDENT: usize = 0;
const GHOST: usize = 1;
/// The only queue of the stack; its front is the top.
const STACK: usize = 0;
/// Mark of a block of low inter-reference recency in the stack; other blocks have mark 0.
const LOW: u8 = 1;

/// One hundredth of the capacity, at least one block, is for blocks of high inter-reference recency.
///
/// The rules are libCacheSim's where it departs from the paper: a use of a block that is only in the queue
/// also demotes a low block, and the stack is limited to twice the capacity by forgetting the oldest ghosts.
/// A demotion can fill the queue beyond its capacity: a plain cache then evicts the queue's oldest block at
/// once (`abort`), a tier of a run keeps it until it needs capacity.
#[derive(Debug)]
pub struct Lirs {
    stack: Queues<1>,
    others: Queues<2>,
    low_blocks: usize,
    low_capacity_blocks: usize,
    prefetch_blocks: usize,
}

impl Lirs {
    /// A policy without resident blocks and ghosts.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            stack: Queues::new(bounds.universe),
            others: Queues::new(bounds.universe),
            low_blocks: 0,
            low_capacity_blocks: bounds.capacity - Self::queue_capacity_blocks(bounds.capacity),
            prefetch_blocks: bounds.capacity,
        }
    }

    fn queue_capacity_blocks(capacity: usize) -> usize {
        (capacity / 100).max(1)
    }

    fn in_stack(&self, block: u32) -> bool {
        self.stack.queue_of(block).is_some()
    }

    fn is_low(&self, block: u32) -> bool {
        self.in_stack(block) && self.stack.mark_of(block) == LOW
    }

    /// Puts a block on top of the stack, from any position.
    fn put_on_top(&mut self, block: u32, mark: u8) {
        if self.in_stack(block) {
            self.stack.unlink(block);
        }
        self.stack.push_front(STACK, block);
        *self.stack.mark(block) = mark;
    }

    /// Removes blocks from the bottom until a low block is there; removed ghosts are forgotten.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.back(STACK) {
            if self.stack.mark_of(bottom) == LOW {
                return;
            }
            self.stack.unlink(bottom);
            if self.others.queue_of(bottom) == Some(GHOST) {
                self.others.unlink(bottom);
            }
        }
    }

    /// Moves the low block at the bottom to the queue.
    fn take_one_down(&mut self) {
        self.prune();
        if let Some(bottom) = self.stack.back(STACK) {
            self.stack.unlink(bottom);
            self.low_blocks -= 1;
            self.others.push_front(RESIDENT, bottom);
        }
        self.prune();
    }

    fn evict_low(&mut self) {
        while self.low_blocks > 0 && self.low_blocks >= self.low_capacity_blocks {
            self.take_one_down();
        }
    }

    /// Forgets the oldest ghosts while the stack is too long.
    fn forget(&mut self) {
        while self.stack.len(STACK) > 2 * self.prefetch_blocks {
            let Some(oldest) = self.others.back(GHOST) else {
                return;
            };
            self.others.unlink(oldest);
            self.stack.unlink(oldest);
        }
    }

    /// Evicts a block of the queue; it becomes a ghost if the stack has it.
    fn leave_queue(&mut self, block: u32) {
        self.others.unlink(block);
        if self.in_stack(block) {
            self.others.push_front(GHOST, block);
        }
        self.forget();
    }
}

impl ObjectPolicy for Lirs {
    fn contains(&self, block: u32) -> bool {
        match self.others.queue_of(block) {
            Some(RESIDENT) => true,
            Some(_) => false,
            None => self.in_stack(block),
        }
    }

    fn on_hit(&mut self, block: u32) {
        if self.is_low(block) {
            self.put_on_top(block, LOW);
            self.prune();
        } else if self.in_stack(block) {
            self.others.unlink(block);
            self.put_on_top(block, LOW);
            self.low_blocks += 1;
            while self.low_blocks > self.low_capacity_blocks {
                self.take_one_down();
            }
            self.prune();
        } else {
            self.others.move_to(RESIDENT, block);
            self.evict_low();
            self.put_on_top(block, 0);
        }
        self.forget();
    }

    fn insert(&mut self, block: u32) {
        if self.in_stack(block) {
            self.others.unlink(block);
            self.stack.unlink(block);
            self.evict_low();
            self.put_on_top(block, LOW);
            self.low_blocks += 1;
        } else if self.low_blocks < self.low_capacity_blocks {
            self.put_on_top(block, LOW);
            self.low_blocks += 1;
        } else {
            self.put_on_top(block, 0);
            self.others.push_front(RESIDENT, block);
        }
        self.forget();
    }

    fn freed(&mut self, block: Option<u32>) {
        self.others.freed(block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        if let Some(victim) = self.others.last_free(RESIDENT, may_go) {
            self.leave_queue(victim);
            return Some(victim);
        }
        let stack = &self.stack;
        let low = |block: u32| stack.mark_of(block) == LOW && may_go(block);
        let victim = self.stack.last_that(STACK, low)?;
        self.remove(victim);
        Some(victim)
    }

    fn abort(&mut self, may_go: &MayGo) -> Option<u32> {
        let bounds = self.prefetch_blocks - self.low_capacity_blocks;
        if self.others.len(RESIDENT) <= bounds {
            return None;
        }
        let victim = self.others.last_free(RESIDENT, may_go)?;
        self.leave_queue(victim);
        Some(victim)
    }

    fn aborts(&self) -> bool {
        true
    }

    fn remove(&mut self, block: u32) {
        if !self.contains(block) {
            return;
        }
        if self.is_low(block) {
            self.low_blocks -= 1;
        } else {
            self.others.unlink(block);
        }
        if self.in_stack(block) {
            self.stack.unlink(block);
            self.prune();
        }
    }
}

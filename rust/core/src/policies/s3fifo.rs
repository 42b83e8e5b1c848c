//! S3-FIFO: a small queue filters blocks used once, a main queue gives second chances.
//!
//! What it does: A small queue has a tenth of the capacity, a main queue the rest, and ghosts keep the names of
//! nine tenths. New blocks join the small queue, blocks with a ghost the main queue. At the small queue's end a
//! block with two uses moves to the main queue, and any other block becomes a ghost. At the main queue's end a used
//! block is reinserted with one use less. Until the first eviction a full small queue passes its blocks to the main
//! one.
//!
//! Why: Most blocks of a trace are used once: they leave after a tenth of the capacity.
//!
//! Example: Of 10 blocks, `a a a b c d e f g h i j k` evicts `b`: a was used twice and moves to the main queue.
//!
//! Source: Yang et al., S3-FIFO, SOSP 2023; before the first eviction libCacheSim's rule.

use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("s3fifo", |_, bounds| {
    bounds.queues(S3Fifo::new(bounds.capacity))
});

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Uses after insertion with which a block moves from the small to the main queue.
const PROMOTE: u8 = 2;
const MOST_USES: u8 = 3;

/// The small queue has a tenth of the capacity; ghosts are remembered for nine tenths. Until the first
/// eviction a full small queue passes new blocks to the main queue (a rule of libCacheSim; the paper does not
/// specify the warm-up). A block that is not evictable is skipped: moved to the front of its queue.
#[derive(Debug)]
pub struct S3Fifo {
    small_blocks: usize,
    main_blocks: usize,
    ghosts: usize,
    was_ghost: bool,
    has_evicted: bool,
}

impl S3Fifo {
    /// A policy without resident blocks and ghosts.
    pub fn new(capacity: usize) -> Self {
        let small_blocks = capacity / 10;
        Self {
            small_blocks,
            main_blocks: capacity - small_blocks,
            ghosts: capacity - capacity.div_ceil(10),
            was_ghost: false,
            has_evicted: false,
        }
    }

    fn evict_small(&self, queues: &mut Queues<3>, may_go: &MayGo) -> Option<u32> {
        let mut left = queues.len(SMALL);
        while left > 0 {
            let (at, uses) = queues.last(SMALL)?;
            if uses >= PROMOTE {
                queues.move_to(MAIN, at);
                left -= 1;
            } else if may_go(at) {
                queues.move_to(GHOST, at);
                if queues.len(GHOST) > self.ghosts {
                    queues.drop_last(GHOST);
                }
                return Some(at);
            } else {
                let held = |block, uses| (uses < PROMOTE && !may_go(block)).then_some(uses);
                left -= queues.turn(SMALL, left, held);
            }
        }
        None
    }

    fn evict_main(queues: &mut Queues<3>, may_go: &MayGo) -> Option<u32> {
        queues.take_unturned(MAIN, MOST_USES + 2, |block, uses| {
            let stays = uses > 0 || !may_go(block);
            stays.then(|| uses.min(MOST_USES).saturating_sub(1))
        })
    }
}

impl QueueRule<3> for S3Fifo {
    fn is_resident(queue: usize) -> bool {
        queue != GHOST
    }

    fn on_hit(&mut self, queues: &mut Queues<3>, block: u32) {
        let uses = queues.mark(block);
        *uses = uses.saturating_add(1);
    }

    fn on_miss(&mut self, queues: &mut Queues<3>, block: u32) {
        self.was_ghost = queues.queue_of(block).is_some();
        if self.was_ghost {
            queues.unlink(block);
        }
    }

    fn insert(&mut self, queues: &mut Queues<3>, block: u32) {
        let warm_up = !self.has_evicted && queues.len(SMALL) >= self.small_blocks;
        let to_main = self.was_ghost || warm_up;
        queues.push_front(if to_main { MAIN } else { SMALL }, block);
    }

    fn evict(&mut self, queues: &mut Queues<3>, may_go: &MayGo) -> Option<u32> {
        self.has_evicted = true;
        if queues.len(MAIN) > self.main_blocks || queues.len(SMALL) == 0 {
            let used = Self::evict_main(queues, may_go);
            used.or_else(|| self.evict_small(queues, may_go))
        } else {
            // promotions from the small queue have freed no capacity yet
            let once = self.evict_small(queues, may_go);
            once.or_else(|| Self::evict_main(queues, may_go))
        }
    }
}

//! ARC: recency and frequency share the capacity, and the names of evicted blocks shift the border.
//!
//! What it does: Blocks used once are in T1, blocks used again in T2, both by recency. The names of evicted blocks
//! stay in B1 and B2. A miss in B1 raises T1's target size, a miss in B2 lowers it. Evict from T1 if it is above
//! its target, else from T2.
//!
//! Why: It resists scans of prompts that never return, and needs no tuning when traffic changes.
//!
//! Example: Of 3 blocks, `a a b c d e` evicts `b c`: the new blocks pass by a, which was used twice.
//!
//! Source: Megiddo and Modha, ARC, FAST 2003.

use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("arc", |_, bounds| bounds.queues(Arc::new(bounds.capacity)));

/// Indices of the queues: used once and used again, both resident; and the ghosts (names of evicted blocks)
/// of each.
const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// The published algorithm, with the paper's cases named in comments. If the victim of a list is not
/// evictable, the next older evictable block is taken, then a block of the other list.
#[derive(Debug)]
pub struct Arc {
    capacity: usize,
    /// Number of blocks that `T1` should have (p of the paper, a real number).
    target: f64,
    /// The ghost queue that had the block being inserted, if any.
    ghost: Option<usize>,
}

impl Arc {
    /// A policy without resident blocks and ghosts.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            target: 0.0,
            ghost: None,
        }
    }

    /// REPLACE of the paper: the victim's name goes to the ghosts of its list.
    fn replace(&mut self, queues: &mut Queues<4>, may_go: &MayGo) -> Option<u32> {
        let t1 = queues.len(T1) as f64;
        let over = t1 > self.target || (t1 == self.target && self.ghost == Some(B2));
        let order = if queues.len(T1) > 0 && over {
            [T1, T2]
        } else {
            [T2, T1]
        };
        for list in order {
            if let Some(victim) = queues.last_free(list, may_go) {
                queues.move_to(if list == T1 { B1 } else { B2 }, victim);
                return Some(victim);
            }
        }
        None
    }
}

impl QueueRule<4> for Arc {
    fn is_resident(queue: usize) -> bool {
        matches!(queue, T1 | T2)
    }

    /// Case I.
    fn on_hit(&mut self, queues: &mut Queues<4>, block: u32) {
        queues.move_to(T2, block);
    }

    fn on_hits(&mut self, queues: &mut Queues<4>, blocks: &[u32]) {
        queues.move_all_to(T2, blocks);
    }

    fn on_miss(&mut self, queues: &mut Queues<4>, block: u32) {
        self.ghost = queues.queue_of(block);
        let (b1, b2) = (queues.len(B1) as f64, queues.len(B2) as f64);
        match self.ghost {
            // case II
            Some(B1) => self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64),
            // case III
            Some(_) => self.target = (self.target - (b1 / b2).max(1.0)).max(0.0),
            // case IV: the directory forgets
            None if queues.len(T1) + queues.len(B1) >= self.capacity => drop(queues.drop_last(B1)),
            None => {
                let known: usize = (T1..=B2).map(|list| queues.len(list)).sum();
                if known >= 2 * self.capacity {
                    queues.drop_last(B2);
                }
            }
        }
        if self.ghost.is_some() {
            queues.unlink(block);
        }
    }

    fn insert(&mut self, queues: &mut Queues<4>, block: u32) {
        let list = if self.ghost.take().is_some() { T2 } else { T1 };
        queues.push_front(list, block);
    }

    fn evict(&mut self, queues: &mut Queues<4>, may_go: &MayGo) -> Option<u32> {
        if self.ghost.is_none() && queues.len(T1) >= self.capacity {
            // case IV A with no ghosts left: the victim becomes no ghost
            return queues.take_last_that(T1, may_go);
        }
        self.replace(queues, may_go)
    }
}

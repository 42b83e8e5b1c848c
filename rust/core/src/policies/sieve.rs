//! SIEVE: one queue, one bit a block, and a hand that keeps its position.
//!
//! What it does: Blocks are in one queue by insertion, and a use sets a block's bit. A hand moves from old to new,
//! clears set bits and evicts the first block without a bit; the next eviction continues there. A block that is not
//! evictable loses its bit too.
//!
//! Why: New blocks without a use leave soon, and a use moves nothing: less work than `lru`.
//!
//! Example: Of 3 blocks, `a b c a d e f` evicts `b c d`: a was used and keeps its position behind the hand.
//!
//! Source: Zhang et al., SIEVE, NSDI 2024.

use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("sieve", |_, bounds| bounds.queues(Sieve::default()));

/// A block that is not evictable is skipped like a visited block: its bit is cleared.
#[derive(Debug, Default)]
pub struct Sieve {
    hand: Option<u32>,
}

impl QueueRule<1> for Sieve {
    fn on_hit(&mut self, queues: &mut Queues<1>, block: u32) {
        *queues.mark(block) = 1;
    }

    fn evict(&mut self, queues: &mut Queues<1>, may_go: &MayGo) -> Option<u32> {
        // two rounds clear every bit; a third can find no further block
        for _ in 0..3 * queues.len(0) {
            let at = self.hand.or_else(|| queues.back(0))?;
            self.hand = queues.front_neighbor(at);
            let visited = std::mem::take(queues.mark(at));
            if visited == 0 && may_go(at) {
                queues.unlink(at);
                return Some(at);
            }
        }
        None
    }

    fn remove(&mut self, queues: &mut Queues<1>, block: u32) {
        if self.hand == Some(block) {
            self.hand = queues.front_neighbor(block);
        }
        queues.unlink(block);
    }
}

//! CLOCK: first in, first out, with a second chance for used blocks.
//!
//! What it does: Blocks are in one queue by insertion, and a use sets a block's bit. Evict the oldest block without
//! a bit; a block with a bit returns to the newest end without it. A block that is not evictable returns too.
//!
//! Why: It is close to `lru`, and a use only sets a bit.
//!
//! Example: Of 3 blocks, `a b c a d e f` evicts `b c a`: a was used and gets a second round; then it is the oldest.
//!
//! Source: Corbató, MIT MAC-M-384, 1968; the bit of a new block is libCacheSim's.

use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("clock", |_, bounds| bounds.queues(Clock));

/// A block that is not evictable is skipped like a used block: moved to the front, its bit cleared.
#[derive(Debug)]
pub struct Clock;

impl QueueRule<1> for Clock {
    fn on_hit(&mut self, queues: &mut Queues<1>, block: u32) {
        *queues.mark(block) = 1;
    }

    fn evict(&mut self, queues: &mut Queues<1>, may_go: &MayGo) -> Option<u32> {
        queues.take_unturned(0, 3, |block, used| {
            (used > 0 || !may_go(block)).then_some(0)
        })
    }
}

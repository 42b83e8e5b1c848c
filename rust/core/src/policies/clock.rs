//! CLOCK: first in, first out, with a second chance for used blocks (Corbató 1968).

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

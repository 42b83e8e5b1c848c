//! SIEVE: one queue, a visited bit, and a hand that moves from old to new and keeps its position (Zhang et al. 2024).

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

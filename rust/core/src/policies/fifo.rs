//! First in, first out.
//!
//! What it does: Evict the block that was inserted first. A use has no influence.
//!
//! Why: A use costs no work. A baseline: the difference from `lru` is the worth of recency.
//!
//! Example: Of 3 blocks, `a b c a d e` evicts `a b`: the use of a does not help it.
//!
//! Source: Belady, IBM Systems Journal 1966.

use super::leaf::{Facts, Key, LeafPolicy};
use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::ranked("fifo", |_| Box::new(Fifo)).with_queues(|_, bounds| bounds.queues(Fifo));

/// The policy as a key, and on single blocks as one queue, front newest.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

impl LeafPolicy for Fifo {
    fn key(&self, facts: &Facts) -> Key {
        Key::of(facts.created)
    }
}

impl QueueRule<1> for Fifo {
    fn on_hit(&mut self, _: &mut Queues<1>, _block: u32) {}

    fn evict(&mut self, queues: &mut Queues<1>, may_go: &MayGo) -> Option<u32> {
        queues.take_last_that(0, may_go)
    }
}

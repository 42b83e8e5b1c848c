//! Least recently used.
//!
//! What it does: Evict the least recently used block; on a tie the deepest in its prompt.
//!
//! Why: Conversations and agents return soon: the block used last is the likeliest to be used next. The default of
//! vLLM and SGLang.
//!
//! Example: Of 3 blocks, `a b c a d e` evicts `b c`: a was used after them.
//!
//! Source: Mattson et al., IBM Systems Journal 1970.

use super::leaf::{Facts, Key, LeafPolicy};
use super::object::MayGo;
use super::queues::{QueueRule, Queues};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::ranked("lru", |_| Box::new(Lru)).with_queues(|_, bounds| bounds.queues(Lru));

/// The policy as a key, and on single blocks as one list, front most recent.
///
/// ```
/// use kvsim_core::policies::{lru::Lru, object::ObjectPolicy, queues::QueuePolicy};
///
/// let mut cache = QueuePolicy::new(Lru, 3);
/// cache.insert(0);
/// cache.insert(1);
/// cache.on_hit(0);
/// assert_eq!(cache.evict(2, &|_| true), Some(1));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Lru;

impl LeafPolicy for Lru {
    fn key(&self, facts: &Facts) -> Key {
        Key::of(facts.last_access)
    }
}

impl QueueRule<1> for Lru {
    fn on_hit(&mut self, queues: &mut Queues<1>, block: u32) {
        queues.move_to(0, block);
    }

    fn evict(&mut self, queues: &mut Queues<1>, may_go: &MayGo) -> Option<u32> {
        queues.take_last_that(0, may_go)
    }
}

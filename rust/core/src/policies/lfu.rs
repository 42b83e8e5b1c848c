//! Least frequently used, with counts kept only while a block is cached.
//!
//! What it does: Evict the block with the fewest uses since its insertion, which counts as the first; on a tie the
//! least recent. Eviction resets a block's count.
//!
//! Why: Prefixes that many requests share, such as system prompts, stay. Sessions that ended after many turns stay
//! too long.
//!
//! Example: Of 3 blocks, `a b a b c d` evicts `c`: a and b were used twice.
//!
//! Source: Robinson and Devarakonda, SIGMETRICS 1990.

use super::leaf::{Facts, Key, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("lfu", |_| Box::new(Lfu));

/// The policy as a key.

#[derive(Debug, Clone, Copy)]
pub struct Lfu;

impl LeafPolicy for Lfu {
    fn key(&self, facts: &Facts) -> Key {
        Key::with_use(facts.hits, facts)
    }
}

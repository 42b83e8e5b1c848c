//! Greedy dual size frequency, with blocks of equal size and cost.
//!
//! What it does: A block's key is the age at its last use plus its uses; blocks have equal size and cost. Evict the
//! smallest key, which becomes the age.
//!
//! Why: The age lets blocks of many uses leave in the end, which `lfu` does not.
//!
//! Example: Of 2 blocks, `a a a b c d e` evicts `b c a`: a has value 3; b leaves at 1, c at 2, and d then has 3 too
//! and was used later.
//!
//! Source: Cherkasova, HPL-98-69R1, 1998.

use super::leaf::{ordered, Facts, Key, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("gdsf", |_| Box::new(Gdsf::default()));

/// The age is the priority of the last victim, so resident blocks must earn more than evicted blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gdsf {
    age: f64,
}

impl LeafPolicy for Gdsf {
    fn key(&self, facts: &Facts) -> Key {
        Key::with_use(ordered(self.age + facts.hits as f64), facts)
    }

    fn on_evict(&mut self, key: Key) {
        self.age = self.age.max(f64::from_bits(key.value));
    }
}

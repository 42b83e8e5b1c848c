//! Greedy dual size frequency: age + uses × cost / size (Cherkasova 1998); blocks have equal size and cost.

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

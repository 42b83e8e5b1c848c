//! Least frequently used, counts kept only while cached; ties by recency (Robinson and Devarakonda 1990).

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

//! Most recently used.
//!
//! What it does: Evict the leaf whose last use is shortest ago.
//!
//! Why: A loop a little longer than the cache keeps its beginning.
//!
//! Example: Of 3 blocks, `a b c d` evicts `c`: no other use is as short ago.
//!
//! Source: Chou and DeWitt, VLDB 1985.

use super::leaf::{Facts, Key, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("mru", |_| Box::new(Mru));

/// The policy as a key.
#[derive(Debug, Clone, Copy)]
pub struct Mru;

impl LeafPolicy for Mru {
    fn key(&self, facts: &Facts) -> Key {
        Key::of(u64::MAX - facts.last_access)
    }
}

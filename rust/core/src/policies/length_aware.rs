//! Length-aware: like least frequently used, but blocks later in their prompt are evicted first (Mooncake, Qin et al. 2025).

use super::leaf::{Facts, Key, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("length-aware", |_| Box::new(LengthAware));

/// The policy as a key.

#[derive(Debug, Clone, Copy)]
pub struct LengthAware;

impl LeafPolicy for LengthAware {
    fn key(&self, facts: &Facts) -> Key {
        let early = u32::MAX - facts.depth;
        Key::with_use(facts.hits << 32 | u64::from(early), facts)
    }

    fn by_depth(&self) -> bool {
        true
    }
}

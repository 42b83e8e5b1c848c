//! Fewest uses first, of these the deepest in its prompt.
//!
//! What it does: Evict the block with the fewest uses; on a tie the deepest in its prompt, then the least recent.
//!
//! Why: The tail of a prompt is useless without its head, which other prompts may share.
//!
//! Example: Of 3 blocks, `a0 b5 c1 d0` evicts `b`: all were used once, and b is the deepest: the numbers are
//! depths.
//!
//! Source: Qin et al., Mooncake, FAST 2025.

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

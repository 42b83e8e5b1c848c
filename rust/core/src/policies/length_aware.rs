//! Length-aware: like least frequently used, but blocks later in their prompt go first (Mooncake, Qin et al. 2025).

use super::leaf::{Facts, Key, LeafPolicy};

#[derive(Debug, Clone, Copy)]
pub struct LengthAware;

impl LeafPolicy for LengthAware {
    fn key(&self, facts: &Facts) -> Key {
        let early = u32::MAX - facts.depth;
        (facts.hits << 32 | u64::from(early), facts.last_access)
    }

    fn by_depth(&self) -> bool {
        true
    }
}

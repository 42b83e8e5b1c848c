//! Length-aware: like least frequently used, but blocks later in their prompt go first (Mooncake, Qin et al. 2025).

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
        (facts.hits << 32 | u64::from(early), facts.last_access)
    }

    fn by_depth(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};

    /// a, b and c were used once; b stands deepest.
    #[test]
    fn of_equal_uses_the_latest_in_its_prompt_goes() {
        let left = who_leaves(&POLICY, &plain(), 3, "a0 b5 c1 d0");
        assert_eq!(left, "b");
    }

    /// b was used twice, so c, which stands less deep, goes.
    #[test]
    fn uses_count_before_depth() {
        let left = who_leaves(&POLICY, &plain(), 3, "a0 b5 b5 c1 d0");
        assert_eq!(left, "c");
    }
}

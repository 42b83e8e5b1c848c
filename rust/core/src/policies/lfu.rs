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
        (facts.hits, facts.last_access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};

    /// a and b were used twice.
    #[test]
    fn fewest_uses_go_first() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b a b c d");
        assert_eq!(left, "c");
    }

    /// b and c were used once, b longer ago.
    #[test]
    fn equal_counts_go_by_recency() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b c a d");
        assert_eq!(left, "b");
    }

    /// b was used twice and comes back with a count of one.
    #[test]
    fn a_count_is_forgotten_with_its_block() {
        let left = who_leaves(&POLICY, &plain(), 2, "b b a a a c b d");
        assert_eq!(left, "b c b");
    }
}

//! Most recently used: the leaf whose last use is shortest ago (Chou and DeWitt 1985).

use super::leaf::{Facts, Key, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("mru", |_| Box::new(Mru));

/// The policy as a key.
#[derive(Debug, Clone, Copy)]
pub struct Mru;

impl LeafPolicy for Mru {
    fn key(&self, facts: &Facts) -> Key {
        (u64::MAX - facts.last_access, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};

    /// c was used last when d comes, then d.
    #[test]
    fn the_latest_use_goes_first() {
        let left = who_leaves(&POLICY, &plain(), 3, "a b c d e");
        assert_eq!(left, "c d");
    }
}

//! Time to live: a block unused for the time is gone; under pressure the next to expire goes (Jung et al. 2003).

use super::leaf::{Facts, Key, Lapse, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("ttl", |settings| {
    Box::new(Ttl {
        ttl_ns: settings.ttl_ns,
    })
});

/// One time to live for all blocks.

#[derive(Debug, Clone, Copy)]
pub struct Ttl {
    /// Time after its last use from which a block is gone.
    pub ttl_ns: i64,
}

impl LeafPolicy for Ttl {
    fn key(&self, facts: &Facts) -> Key {
        // one time to live for all: the order of expiry is the order of use
        (facts.last_access, 0)
    }

    fn lapse(&self, facts: &Facts) -> Lapse {
        Lapse::Gone(facts.last_access_ns.saturating_add(self.ttl_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked::{plain, who_leaves};
    use crate::policies::PolicySettings;

    fn ten_ns() -> PolicySettings {
        PolicySettings {
            ttl_ns: 10,
            ..plain()
        }
    }

    /// a was used at 0 and again at 9, b at 0 only: at 10 b is gone, at 19 a is.
    #[test]
    fn a_block_is_gone_when_its_time_has_run_out() {
        let left = who_leaves(&POLICY, &ten_ns(), 8, "a b @9 a @10 c @19 d");
        assert_eq!(left, "b a");
    }

    /// There is room for two: a expires before b.
    #[test]
    fn under_pressure_the_next_to_expire_goes() {
        let left = who_leaves(&POLICY, &ten_ns(), 2, "a @3 b @4 c");
        assert_eq!(left, "a");
    }
}

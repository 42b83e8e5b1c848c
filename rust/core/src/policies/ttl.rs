//! Time to live: a block unused for the time expires; under pressure the next to expire is evicted (Jung et al. 2003).

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
    /// Time after its last use at which a block expires.
    pub ttl_ns: i64,
}

impl LeafPolicy for Ttl {
    fn key(&self, facts: &Facts) -> Key {
        // one time to live for all: the order of expiry is the order of use
        Key::of(facts.last_access)
    }

    fn lapse(&self, facts: &Facts) -> Lapse {
        Lapse::Gone(facts.last_access_ns.saturating_add(self.ttl_ns))
    }
}

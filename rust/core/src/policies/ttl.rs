//! Time to live: a block unused for the time expires.
//!
//! What it does: A block that is unused for the time is evicted immediately. If capacity is short before, evict the
//! block that expires next, which is the least recent.
//!
//! Why: A bound on how long data stays, as caches with billed lifetimes have; also a model of sessions that pause
//! for about a known time.
//!
//! Example: Of 8 blocks, `a b @9 a @10 c @19 d` evicts `b a`: with `ttl` of 10 ns b expires at 10, a, used again at
//! 9, at 19.
//!
//! Source: Jung et al., IEEE INFOCOM 2003.

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

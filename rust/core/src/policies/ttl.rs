//! Time to live: a block unused for the time is gone; under pressure the next to expire goes (Jung et al. 2003).

use super::leaf::{Facts, Key, Lapse, LeafPolicy};

#[derive(Debug, Clone, Copy)]
pub struct Ttl {
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

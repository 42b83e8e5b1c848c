//! The settings of the session view and of shared prefixes, as dataclasses of Python say them.

use kvsim_core::views::PrefixViewConfig;
use pyo3::prelude::*;

/// `cache.session_view.SessionViewSettings`, attribute by attribute.
#[derive(FromPyObject)]
pub struct SessionViewRules {
    pub max_sessions: Option<usize>,
    pub ttl_ns: Option<u64>,
}

/// `cache.prefix_view.PrefixViewSettings`, attribute by attribute.
#[derive(FromPyObject)]
pub struct PrefixViewRules {
    min_tokens: Option<u64>,
    min_seen: u64,
    max_tokens: Option<u64>,
}

impl PrefixViewRules {
    /// The same for the core.
    pub fn config(&self) -> PrefixViewConfig {
        PrefixViewConfig {
            min_tokens: self.min_tokens,
            min_seen: self.min_seen,
            max_tokens: self.max_tokens,
        }
    }
}

//! The settings of the session view and of shared prefixes, read from Python dataclasses.

use kvsim_core::views::PrefixViewConfig;
use pyo3::prelude::*;

use crate::argument::from_attributes;

/// `cache.session_view.SessionViewSettings`, attribute by attribute.
#[derive(FromPyObject)]
pub struct SessionViewRules {
    pub max_sessions: Option<usize>,
    pub ttl_ns: Option<u64>,
}

// `cache.prefix_view.PrefixViewSettings`
from_attributes! {
    PrefixViewConfig { min_tokens, min_seen, max_tokens }
}

//! The prefixes that requests share, where not all are.

use crate::views::PrefixStore;

/// Prefixes that may be shared.
#[derive(Debug)]
pub struct SharedPrefixes {
    /// The rule of what is shared, and what it keeps.
    pub prefixes: PrefixStore,
    /// Tokens of a block.
    pub block_size_tokens: u64,
}

/// Returns the shared prefixes if they have a size limit.
pub(super) fn limited(shared: &mut Option<Box<SharedPrefixes>>) -> Option<&mut PrefixStore> {
    let prefixes = shared.as_deref_mut().map(|shared| &mut shared.prefixes);
    prefixes.filter(|prefixes| prefixes.is_limited())
}

//! The result of a look-up in tokens.

/// Result of a look-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Last node of the prefix.
    pub node: u32,
    /// Tokens from the root to the node's end.
    pub tokens: u64,
}

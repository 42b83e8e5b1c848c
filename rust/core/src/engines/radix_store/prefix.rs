//! The result of a look-up in tokens.

/// Result of a look-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Last node on the device.
    pub node: u32,
    /// Tokens from the root to the node's end.
    pub tokens: u64,
    /// Last node on either tier.
    pub host_node: u32,
    /// Tokens behind the device's that are on the host alone.
    pub host_tokens: u64,
}

impl Prefix {
    /// Returns the prefix once all of it is on the device.
    #[must_use]
    pub fn loaded(self) -> Self {
        Self {
            node: self.host_node,
            tokens: self.tokens + self.host_tokens,
            host_tokens: 0,
            ..self
        }
    }
}

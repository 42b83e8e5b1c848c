//! Writes to the host since a timed store last took them, and the number of host copies of each page.

use crate::engines::key_index::KeyMap;

/// Pages `[start, end)` of a request that were written to the host, and their node at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The tree node whose last pages they are.
    pub node: u32,
    /// A request whose tokens the pages hold.
    pub request: u32,
    /// First page.
    pub start: u32,
    /// End of the pages, exclusive.
    pub end: u32,
}

/// Logs for a timed store.
#[derive(Debug, Default)]
pub(super) struct HostChanges {
    pub written: Vec<Written>,
    /// For each key the number of host pages that have it. A key may occur at two positions of the tree. An
    /// answer has the keys of the next turn, whose prompt may have diverged from it inside a block of the
    /// trace.
    pub copies: KeyMap<u64, u32>,
}

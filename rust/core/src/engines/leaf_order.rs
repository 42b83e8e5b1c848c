//! Orders of leaves by how a node was used, which both trees of SGLang share (0.5.23, `srt/mem_cache/evict_policy.py`).

/// Which leaf is worth least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafOrder {
    /// Least recent access.
    Lru,
    /// Fewest hits, then least recent.
    Lfu,
    /// Oldest node.
    Fifo,
    /// Most recent access.
    Mru,
    /// Newest node.
    Filo,
    /// Hit less than twice, then least recent.
    Slru,
    /// Fewest hits a token, then least recent (pull request 30300).
    Hpt,
}

/// How a node was used: times by the tree's counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// When it was walked last.
    pub last_access: u64,
    /// When it was made.
    pub creation: u64,
    /// How often a request found it.
    pub hit_count: u64,
}

impl LeafOrder {
    /// The order of a name, as SGLang writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru,
            "lfu" => Self::Lfu,
            "fifo" => Self::Fifo,
            "mru" => Self::Mru,
            "filo" => Self::Filo,
            "slru" => Self::Slru,
            "hpt" => Self::Hpt,
            _ => return None,
        })
    }

    /// What a leaf of so many pages is worth; the smallest is evicted first.
    pub fn worth(self, used: NodeUse, pages: u32) -> (u64, u64) {
        match self {
            Self::Lru => (0, used.last_access),
            Self::Lfu => (used.hit_count, used.last_access),
            Self::Fifo => (0, used.creation),
            Self::Mru => (0, u64::MAX - used.last_access),
            Self::Filo => (0, u64::MAX - used.creation),
            Self::Slru => (u64::from(used.hit_count >= 2), used.last_access),
            Self::Hpt => {
                let hits_per_page = (used.hit_count + 1) as f64 / f64::from(pages.max(1));
                // bits of positive floats are in the order of their values
                (hits_per_page.to_bits(), used.last_access)
            }
        }
    }
}

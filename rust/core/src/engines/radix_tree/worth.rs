//! Eviction order of leaves: SGLang's strategies (0.5.23, `srt/mem_cache/evict_policy.py`), shared by its
//! trees.

use super::node::Node;

/// Strategy that orders leaves, on the device and on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafStrategy {
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
    /// Fewer than two hits, then least recent.
    Slru,
    /// Fewest hits per token, then least recent (pull request 30300).
    Hpt,
    /// Lowest priority, then least recent: a prompt has a priority higher by one than its answer.
    Priority,
    /// Leaves that a conversation does not need to stay under a latency budget first, then least recent.
    Tlru {
        /// Tokens that may be recomputed within the budget.
        threshold_tokens: u64,
        /// Tokens that the next prompt is expected to add.
        next_prompt_tokens: u64,
    },
}

impl LeafStrategy {
    /// Returns the strategy of a name, as SGLang writes it, with `tlru`'s two settings.
    pub fn from_name(name: &str, threshold_tokens: u64, next_prompt_tokens: u64) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru,
            "lfu" => Self::Lfu,
            "fifo" => Self::Fifo,
            "mru" => Self::Mru,
            "filo" => Self::Filo,
            "slru" => Self::Slru,
            "hpt" => Self::Hpt,
            "priority" => Self::Priority,
            "tlru" => Self::Tlru {
                threshold_tokens,
                next_prompt_tokens,
            },
            _ => return None,
        })
    }

    /// Returns a strategy of the classic tree, which has neither priorities nor conversations.
    pub fn of_classic(name: &str) -> Option<Self> {
        let is_classic = |s: &Self| !matches!(s, Self::Priority | Self::Tlru { .. });
        Self::from_name(name, 0, 0).filter(is_classic)
    }

    /// Returns the worth of a leaf; the smallest is evicted first.
    pub(super) fn worth(self, node: &Node, page: u64) -> (u64, u64) {
        let used = node.used;
        match self {
            Self::Lru => (0, used.last_access),
            Self::Lfu => (used.hit_count, used.last_access),
            Self::Fifo => (0, used.creation),
            Self::Mru => (0, u64::MAX - used.last_access),
            Self::Filo => (0, u64::MAX - used.creation),
            Self::Slru => (u64::from(used.hit_count >= 2), used.last_access),
            Self::Hpt => {
                let hits_per_page = (used.hit_count + 1) as f64 / f64::from(node.pages.max(1));
                // The bits of positive floats have the order of their values.
                (hits_per_page.to_bits(), used.last_access)
            }
            Self::Priority => (node.priority, used.last_access),
            Self::Tlru {
                threshold_tokens,
                next_prompt_tokens,
            } => {
                let history = u64::from(node.history) * page;
                let budget = (history + next_prompt_tokens).saturating_sub(threshold_tokens);
                let is_needed = u64::from(node.start) * page < budget;
                (u64::from(is_needed), used.last_access)
            }
        }
    }
}

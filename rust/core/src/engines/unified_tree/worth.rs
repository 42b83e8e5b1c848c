//! Which leaf is evicted first: SGLang's strategies (0.5.23, `srt/mem_cache/evict_policy.py`).

use super::Node;

/// The strategy that orders leaves, on the device and on the host.
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
    /// Hit less than twice, then least recent.
    Slru,
    /// Least priority, then least recent: a prompt has one more than its answer.
    Priority,
    /// Past what a conversation needs to stay under a latency budget first, then least recent.
    Tlru {
        /// Tokens that may be recomputed within the budget.
        threshold_tokens: u64,
        /// Tokens that the next prompt is expected to add.
        next_prompt_tokens: u64,
    },
}

impl LeafStrategy {
    /// The strategy of a name, as SGLang writes it, with `tlru`'s two settings.
    pub fn from_name(name: &str, threshold_tokens: u64, next_prompt_tokens: u64) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru,
            "lfu" => Self::Lfu,
            "fifo" => Self::Fifo,
            "mru" => Self::Mru,
            "filo" => Self::Filo,
            "slru" => Self::Slru,
            "priority" => Self::Priority,
            "tlru" => Self::Tlru {
                threshold_tokens,
                next_prompt_tokens,
            },
            _ => return None,
        })
    }

    /// What a leaf is worth; the smallest is evicted first.
    pub(super) fn worth(self, node: &Node, page: u64) -> (u64, u64) {
        match self {
            Self::Lru => (0, node.last_access),
            Self::Lfu => (node.hit_count, node.last_access),
            Self::Fifo => (0, node.creation),
            Self::Mru => (0, u64::MAX - node.last_access),
            Self::Filo => (0, u64::MAX - node.creation),
            Self::Slru => (u64::from(node.hit_count >= 2), node.last_access),
            Self::Priority => (node.priority, node.last_access),
            Self::Tlru {
                threshold_tokens,
                next_prompt_tokens,
            } => {
                let history = u64::from(node.history) * page;
                let budget = (history + next_prompt_tokens).saturating_sub(threshold_tokens);
                let is_needed = u64::from(node.start) * page < budget;
                (u64::from(is_needed), node.last_access)
            }
        }
    }
}

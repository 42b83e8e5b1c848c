//! Which leaf is evicted first: SGLang's strategies (0.5.23, `srt/mem_cache/evict_policy.py`).

use super::Node;
use crate::engines::leaf_order::LeafOrder;

/// The strategy that orders leaves, on the device and on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafStrategy {
    /// By how a node was used.
    Used(LeafOrder),
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
            "priority" => Self::Priority,
            "tlru" => Self::Tlru {
                threshold_tokens,
                next_prompt_tokens,
            },
            other => Self::Used(LeafOrder::from_name(other)?),
        })
    }

    /// What a leaf is worth; the smallest is evicted first.
    pub(super) fn worth(self, node: &Node, page: u64) -> (u64, u64) {
        match self {
            Self::Used(order) => order.worth(node.used, node.pages),
            Self::Priority => (node.priority, node.used.last_access),
            Self::Tlru {
                threshold_tokens,
                next_prompt_tokens,
            } => {
                let history = u64::from(node.history) * page;
                let budget = (history + next_prompt_tokens).saturating_sub(threshold_tokens);
                let is_needed = u64::from(node.start) * page < budget;
                (u64::from(is_needed), node.used.last_access)
            }
        }
    }
}

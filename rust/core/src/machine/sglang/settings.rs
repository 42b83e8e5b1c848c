//! What a scheduler is told once.

use super::super::AsyncScheduling;

/// Who of the queue is looked at first (SGLang's `schedule_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulePolicy {
    /// In the order in which they came; retracted ones behind.
    #[default]
    Fcfs,
    /// The longest cached prefix first.
    LongestPrefix,
    /// Depth first through the tree, the heaviest subtree first.
    DepthFirst,
    /// The longest answer first.
    LongestOutput,
}

impl SchedulePolicy {
    /// The policy of a name, as SGLang writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "fcfs" => Self::Fcfs,
            "lpm" => Self::LongestPrefix,
            "dfs-weight" => Self::DepthFirst,
            "lof" => Self::LongestOutput,
            _ => return None,
        })
    }
}

/// SGLang's options of the same names.
#[derive(Clone, Debug, Default)]
pub struct SglangConfig {
    /// Tokens of a page.
    pub page_size: u64,
    /// Most tokens of prompts in a step.
    pub chunked_prefill_size: u64,
    /// Most tokens of prompts that a step may take up, whatever the chunk.
    pub max_prefill_tokens: u64,
    /// Most requests that have KV of their own.
    pub max_running_requests: u64,
    /// Who of the queue is looked at first.
    pub schedule_policy: SchedulePolicy,
    /// Whether decoding requests join a step that computes prompts.
    pub enable_mixed_chunk: bool,
    /// What the share of an answer that is reserved starts at is multiplied by.
    pub schedule_conservativeness: f64,
    /// Whether a step is decided while the one before it runs, and how answers then end.
    pub async_scheduling: AsyncScheduling,
}

impl SglangConfig {
    /// Tokens that a batch of requests asks to be free beyond what it takes: the allocator counts a page each.
    pub(super) fn slack(&self, requests: u64) -> u64 {
        if self.page_size > 1 {
            requests * self.page_size
        } else {
            0
        }
    }
}

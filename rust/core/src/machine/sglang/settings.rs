//! Settings of SGLang's scheduler.

use super::super::AsyncScheduling;
use crate::names::named_values;

named_values! {
    /// Order of the queue (SGLang's `schedule_policy`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SchedulePolicy {
        /// In order of arrival; retracted requests last.
        #[default]
        Fcfs = "fcfs",
        /// The longest cached prefix first.
        LongestPrefix = "lpm",
        /// Depth first through the tree, the heaviest subtree first.
        DepthFirst = "dfs-weight",
        /// The longest answer first.
        LongestOutput = "lof",
    }
}

/// Rules in which SGLang's releases differ (`model/data/releases/sglang.toml`).
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRules {
    /// Finished requests stop counting as running at each pass; else at the next step that decodes.
    pub drops_finished_each_pass: bool,
    /// A continuing chunk counts as the request that runs; else as one more.
    pub keeps_row_of_chunk: bool,
    /// A chunk that takes all tokens of a step is alone in it; else one more request is looked at.
    pub stops_at_spent_budget: bool,
    /// Copies to the host start after the step in flight.
    pub writes_after_step: bool,
    /// The wait for a prefetch starts when its request could first be admitted, and is not repeated; else it starts
    /// with each prefetch.
    pub waits_from_admission: bool,
}

impl Default for ReleaseRules {
    fn default() -> Self {
        Self {
            drops_finished_each_pass: true,
            keeps_row_of_chunk: true,
            stops_at_spent_budget: true,
            writes_after_step: true,
            waits_from_admission: true,
        }
    }
}

/// Priorities of requests, the smallest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct PriorityRules {
    /// A request preempts running ones whose priority is larger than its own by more than this; `None`: it waits.
    pub preempts_above: Option<u64>,
}

/// SGLang's options of the same names.
#[derive(Clone, Debug, Default)]
pub struct SglangConfig {
    /// Tokens of a page.
    pub page_size: u64,
    /// Upper bound on the prompt tokens that a step computes.
    pub chunked_prefill_size: u64,
    /// Upper bound on the prompt tokens of a step, independent of the chunk size.
    pub max_prefill_tokens: u64,
    /// Upper bound on the requests that have KV of their own.
    pub max_running_requests: u64,
    /// A request that comes is turned away if more than this many would wait; `None`: no bound.
    pub max_queued_requests: Option<u64>,
    /// Order of the queue.
    pub schedule_policy: SchedulePolicy,
    /// True if decoding requests join a step that computes prompts.
    pub enable_mixed_chunk: bool,
    /// Factor on the initial share of an answer that is reserved.
    pub schedule_conservativeness: f64,
    /// Mode of asynchronous scheduling.
    pub async_scheduling: AsyncScheduling,
    /// Rules of priorities; `None`: there are none.
    pub priority: Option<PriorityRules>,
    /// False: no prefix is kept (`disable_radix_cache`).
    pub cache_enabled: bool,
    /// Rules of its release.
    pub release: ReleaseRules,
}

impl SglangConfig {
    /// Free tokens that a batch of requests needs beyond its own: the allocator counts a page for each request.
    pub(super) fn slack(&self, requests: u64) -> u64 {
        if self.page_size > 1 {
            requests * self.page_size
        } else {
            0
        }
    }
}

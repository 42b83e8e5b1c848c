//! Settings of a replica.

use super::fetch::FetchPolicy;
use super::handover::Role;
use super::prefetch_policy::PrefetchPolicy;
use super::queue::QueueOrder;
use crate::convert::fit;
use crate::names::named_values;

named_values! {
    /// Mode of asynchronous scheduling: synchronous, or a step in advance, with or without foreseen ends of answers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum AsyncScheduling {
        /// Each step is decided when the previous step has ended.
        #[default]
        None = "none",
        /// Each step is decided in advance; the end of an answer is foreseen.
        Length = "length",
        /// Each step is decided in advance; the end of an answer is found a step late.
        StopToken = "stop-token",
    }
}

impl AsyncScheduling {
    /// True if a step is decided while the previous step runs.
    pub(super) fn has_lookahead(self) -> bool {
        self != Self::None
    }
}

/// Reads of a machine from the lower tiers of other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    /// True if blocks below the tier that the network reads are first copied up to that tier.
    pub staged: bool,
    /// True if it reads all other machines that serve.
    pub machines: bool,
    /// The number of the shared pool, if there is one.
    pub pool: Option<u32>,
}

impl ReadsConfig {
    /// True if it reads a machine.
    pub fn reads(&self, owner: u32) -> bool {
        self.machines || self.pool == Some(owner)
    }
}

/// Settings of the order and the limits of admission.
#[derive(Clone, Copy, Debug, Default)]
pub struct SchedulingConfig {
    /// Upper bound on the sequences that run at once.
    pub max_num_seqs: u64,
    /// True if a request waits for a block that another request is computing.
    pub waits_for_duplicates: bool,
    /// Order of admission.
    pub queue_order: QueueOrder,
    /// Mode of asynchronous scheduling.
    pub async_scheduling: AsyncScheduling,
    /// Number of waiting requests whose blocks are protected from eviction.
    pub lookahead: usize,
}

/// Settings of the blocks that may hit and of the blocks that are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReuseConfig {
    /// True if computed blocks are kept for other requests at all.
    pub cache_enabled: bool,
    /// True if a prompt that is cached whole needs no prefill.
    pub skips_full_prefill: bool,
    /// Blocks at the end of every hit that are recomputed.
    pub lost_blocks: u32,
    /// True if answers are kept too, and so count as tokens of a session.
    pub cache_output: bool,
    /// True if a finished request's blocks are discarded.
    pub discard_on_finish: bool,
    /// True if only the blocks of a finished request's prompt are kept.
    pub admits_prompts_only: bool,
    /// True if blocks have a time to live.
    pub expires: bool,
}

/// Settings of reads from lower tiers and from other machines.
#[derive(Clone, Copy, Debug, Default)]
pub struct MovementConfig {
    /// Policy for loading blocks from lower tiers.
    pub fetch: FetchPolicy,
    /// Occasion for prefetching the blocks of a request; `None`: never.
    pub prefetch: Option<PrefetchPolicy>,
    /// Reads from other machines; `None`: no reads.
    pub reads: Option<ReadsConfig>,
}

/// Limits on the known sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionLimits {
    /// Upper bound on the known sessions; `None`: any number.
    pub max_sessions: Option<usize>,
    /// Time that a session is known after its last turn; `None`: for ever.
    pub session_ttl_ns: Option<u64>,
}

/// Time from a client to the scheduler: a constant, and a time for each token of the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTimes {
    /// The constant.
    pub offset_ns: u64,
    /// The time of a token.
    pub token_ns: u64,
}

/// Scheduling and cache settings of one replica.
#[derive(Clone, Debug, Default)]
pub struct ReplicaConfig {
    /// The number of its machine, for its rows.
    pub machine: i64,
    /// Number of sources of KV, by which edges are numbered in its rows.
    pub sources: i64,
    /// Tokens that one KV block holds.
    pub block_size_tokens: u64,
    /// Time from a client to the scheduler.
    pub client: ClientTimes,
    /// Order and limits of admission.
    pub scheduling: SchedulingConfig,
    /// Blocks that may hit, and blocks that are kept.
    pub reuse: ReuseConfig,
    /// Reads from lower tiers and from other machines.
    pub movement: MovementConfig,
    /// Limits on the known sessions.
    pub sessions: SessionLimits,
    /// Role in hand-overs between machines.
    pub role: Role,
    /// Milestones from the first time on and before the second are recorded; `None`: none are.
    pub record_window_ns: Option<(u64, u64)>,
}

impl ReplicaConfig {
    /// Number that stands for another machine in place of a tier.
    pub fn remote(&self) -> usize {
        fit::<usize>(self.sources.max(1)) - 1
    }

    /// Number of leading blocks of `tokens` tokens that may hit (semantics 1).
    pub fn matchable_blocks(&self, tokens: u64) -> u32 {
        if !self.reuse.cache_enabled {
            return 0;
        }
        let may_hit = tokens - u64::from(!self.reuse.skips_full_prefill).min(tokens);
        fit::<u32>(may_hit / self.block_size_tokens)
    }
}

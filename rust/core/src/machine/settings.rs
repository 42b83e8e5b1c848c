//! What a replica is told once.

use super::fetch::FetchPolicy;
use super::handover::Role;
use super::prefetch::PrefetchPolicy;
use super::queue::QueueOrder;
use crate::views::{PrefixAdmission, PrefixViewConfig, Sessions, Views};

/// Whether a step is decided on while the one before it runs, and how answers then end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsyncScheduling {
    /// Each step is decided on when the one before it has ended.
    #[default]
    None,
    /// A step ahead; an answer's end is foreseen.
    Length,
    /// A step ahead; an answer's end is found out a step late.
    StopToken,
}

impl AsyncScheduling {
    /// The one of a name, `None` for one that is not of the core.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "length" => Some(Self::Length),
            "stop-token" => Some(Self::StopToken),
            _ => None,
        }
    }

    /// Whether a step is decided on while the one before it runs.
    pub(super) fn has_lookahead(self) -> bool {
        self != Self::None
    }
}

/// How a machine reads the lower tiers of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    /// Whether what lies below the tier that the network reads comes up there first, as a copy.
    pub staged: bool,
    /// Whether it reads all others that serve.
    pub machines: bool,
    /// The number of the shared pool, where there is one.
    pub pool: Option<u32>,
}

impl ReadsConfig {
    /// Whether it reads a machine.
    pub fn reads(&self, owner: u32) -> bool {
        self.machines || self.pool == Some(owner)
    }
}

/// How one replica schedules and what its cache keeps.
#[derive(Clone, Debug, Default)]
pub struct ReplicaConfig {
    /// The number of its machine, for its rows.
    pub machine: i64,
    /// Places that KV may come from, by which edges are numbered in its rows.
    pub sources: i64,
    /// Tokens that one KV block holds.
    pub block_size_tokens: u64,
    /// Most sequences that run at once.
    pub max_num_seqs: u64,
    /// Whether a request waits for a block that another one is computing.
    pub waits_for_duplicates: bool,
    /// Who is admitted next.
    pub queue_order: QueueOrder,
    /// When steps are decided on.
    pub async_scheduling: AsyncScheduling,
    /// Whether computed blocks are kept for others at all.
    pub cache_enabled: bool,
    /// Whether a prompt that is cached whole needs no prefill.
    pub skips_full_prefill: bool,
    /// Blocks at the end of every hit that are computed again.
    pub lost_blocks: u32,
    /// Whether answers are kept too, and so count in what a session has.
    pub cache_output: bool,
    /// Whether a finished request's blocks are discarded.
    pub discard_on_finish: bool,
    /// Whether only the blocks of a finished request's prompt are kept.
    pub admits_prompts_only: bool,
    /// How much of what lies on lower tiers is loaded.
    pub fetch: FetchPolicy,
    /// When blocks come up ahead of their request; `None`: never.
    pub prefetch: Option<PrefetchPolicy>,
    /// How it reads from other machines; `None`: it does not.
    pub reads: Option<ReadsConfig>,
    /// Whether blocks have a time to live.
    pub expires: bool,
    /// How many of the waiting requests have their blocks protected from eviction.
    pub lookahead: usize,
    /// Most sessions that are known, and for how long after a turn; `None`: any number, for ever.
    pub max_sessions: Option<usize>,
    /// How long a session is known after its last turn.
    pub session_ttl_ns: Option<u64>,
    /// When prefixes may be shared between requests; `None`: at once.
    pub prefix_view: Option<PrefixViewConfig>,
    /// What it does for other machines.
    pub role: Role,
    /// Milestones from the first time on and before the second are recorded; `None`: none are.
    pub record_window_ns: Option<(u64, u64)>,
}

impl ReplicaConfig {
    /// In place of a tier: another machine.
    pub fn remote(&self) -> usize {
        self.sources.max(1) as usize - 1
    }

    /// Views without sessions and prefixes, within its bounds.
    pub fn views(&self) -> Views {
        let block = self.block_size_tokens;
        Views {
            sessions: Sessions::new(self.max_sessions, self.session_ttl_ns),
            prefixes: self
                .prefix_view
                .map(|config| PrefixAdmission::new(config, block)),
        }
    }

    /// How many leading blocks of so many tokens may hit (semantics 1).
    pub fn matchable_blocks(&self, tokens: u64) -> u32 {
        if !self.cache_enabled {
            return 0;
        }
        let may_hit = tokens - u64::from(!self.skips_full_prefill).min(tokens);
        (may_hit / self.block_size_tokens) as u32
    }
}

//! A request that asks an engine's pool for admission, and the outcome (`KVCacheManager.get_computed_blocks`
//! and `allocate_slots`).

use crate::ids::{LeaseId, MoveId};

/// A request that asks for admission.
#[derive(Debug, Clone, Copy, Default)]
pub struct Newcomer {
    /// Its number.
    pub request: u32,
    /// Prompt tokens: another request with this prompt can resume from its end.
    pub prompt_tokens: u64,
    /// Tokens to compute before it decodes: its prompt, and tokens generated before a preemption.
    pub known_tokens: u64,
    /// Cached tokens without which it is not admitted in this step.
    pub least_cached_tokens: u64,
    /// Blocks of the alignment that may hit.
    pub matchable_blocks: u32,
    /// Tokens of the step that it may use.
    pub step_tokens: u64,
    /// Maximum tokens of any of its chunks.
    pub chunk_tokens: u64,
    /// Free blocks that it must leave.
    pub kept_blocks: u64,
    /// True if blocks for all its tokens must be free, not only for its first step.
    pub whole: bool,
    /// Free blocks that prompts at work still need: it must leave them, if it first waits for a load.
    pub claimed_blocks: u64,
    /// True if another machine has computed its prompt, which is read whole.
    pub is_handed_over: bool,
    /// Maximum number of steps in flight: blocks that they read are kept until they finish.
    pub steps_in_flight: u64,
}

/// Outcome of a request for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Admitted: its lease, its hit blocks of the alignment, and the tokens that blocks are reserved for.
    Admitted {
        /// The lease.
        lease: LeaseId,
        /// Blocks of the alignment that it reuses.
        hit_blocks: u32,
        /// Tokens up to which blocks are reserved: those of its first step.
        reserved_tokens: u64,
    },
    /// Admitted, and its step loads a tier's part of its prefix before it computes.
    Brings {
        /// The lease.
        lease: LeaseId,
        /// Tokens that are found; of a prompt found whole one is computed.
        found_tokens: u64,
        /// Blocks at their start that the pool has.
        in_pool_blocks: u32,
        /// Tokens up to which blocks are reserved.
        reserved_tokens: u64,
    },
    /// Too few free blocks.
    NoCapacity,
    /// The step has too few tokens left for a state to end where it can be kept.
    NoTokens,
    /// The state to resume from is computed in this very step, or the step admits only more cached tokens.
    NotYet,
    /// It holds its blocks and waits until a tier's part of its prefix is loaded.
    Loads {
        /// The lease.
        lease: LeaseId,
        /// Tokens that it reuses.
        hit_tokens: u64,
        /// Blocks at their start that the pool has.
        in_pool_blocks: u32,
    },
    /// Its copies, or those of blocks that it would load, have not ended: requests behind it go first.
    Later,
}

/// Blocks and moves of an admission that loads from a lower tier; counts are blocks of the alignment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// Blocks that the pool itself had.
    pub in_pool_blocks: u32,
    /// Moves that must finish before its blocks are free.
    pub freeing_moves: Vec<MoveId>,
    /// Moves that load its KV.
    pub loads: Vec<MoveId>,
}

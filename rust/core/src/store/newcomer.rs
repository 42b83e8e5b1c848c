//! A request that asks to run, and what is made of it (`KVCacheManager.get_computed_blocks` and
//! `allocate_slots`).

use crate::ids::{LeaseId, MoveId};

/// A request that asks to run.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer {
    /// Its number.
    pub request: u32,
    /// Tokens of its prompt: another request of it can go on from where it ends.
    pub prompt_tokens: u64,
    /// Tokens to compute before it decodes: those of the prompt, and what it generated before a preemption.
    pub known_tokens: u64,
    /// Blocks of the alignment that may hit.
    pub matchable_blocks: u32,
    /// Tokens of the step that it may have.
    pub step_tokens: u64,
    /// Most tokens that any of its chunks may have.
    pub chunk_tokens: u64,
    /// Free blocks that it leaves.
    pub kept_blocks: u64,
    /// Whether all its tokens must have room, not only those of its first step.
    pub whole: bool,
    /// Steps that may be under way at one time: what they read is kept until they have ended.
    pub steps_in_flight: u64,
}

/// What was made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It runs: its lease, the blocks of the alignment that it hit, and the tokens that it has room for.
    Admitted {
        /// What it holds.
        lease: LeaseId,
        /// Blocks of the alignment that it reuses.
        hit_blocks: u32,
        /// Tokens up to which there is room: those of its first step.
        reserved_tokens: u64,
    },
    /// Blocks are too few.
    NoCapacity,
    /// The step has too few tokens left for a state to end where it can be kept.
    NoTokens,
    /// The state that it would go on from is computed in this very step.
    NotYet,
}

/// What an admission brings from the tier; counts are blocks of the alignment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// Those that the pool itself had.
    pub in_pool_blocks: u32,
    /// Moves that must end before its room is free.
    pub freeing_moves: Vec<MoveId>,
    /// Moves that bring its KV.
    pub loads: Vec<MoveId>,
}

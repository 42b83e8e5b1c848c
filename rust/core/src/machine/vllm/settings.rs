//! What a scheduler is told once.

use super::super::AsyncScheduling;

/// vLLM's options of the same names, and what the cache keeps.
#[derive(Clone, Debug, Default)]
pub struct VllmConfig {
    /// Tokens that one KV block holds.
    pub block_size_tokens: u64,
    /// Most tokens of a step.
    pub max_num_batched_tokens: u64,
    /// Most requests that run at once.
    pub max_num_seqs: u64,
    /// Most tokens of one request in a step where others are there; 0: no such bound.
    pub long_prefill_token_threshold: u64,
    /// Blocks that an admission leaves free while others run.
    pub watermark_blocks: u64,
    /// Whether a request is admitted only where all its tokens have room.
    pub reserve_full_isl: bool,
    /// Whether the queue is ordered by priority, then by arrival.
    pub by_priority: bool,
    /// Whether a step is decided while the one before it runs, and how answers then end.
    pub async_scheduling: AsyncScheduling,
    /// Pipeline stages, each with a step of its own in flight.
    pub stages: usize,
    /// Whether computed blocks get keys.
    pub cache_enabled: bool,
    /// Whether blocks of the answer get keys too.
    pub cache_output: bool,
}

impl VllmConfig {
    /// Steps that may be under way at one time.
    pub(super) fn steps_in_flight(&self) -> u64 {
        self.stages.max(1) as u64 + u64::from(self.async_scheduling.has_lookahead())
    }

    /// Most tokens that a chunk of a prompt may have.
    pub(super) fn chunk_tokens(&self) -> u64 {
        match self.long_prefill_token_threshold {
            0 => self.max_num_batched_tokens,
            threshold => threshold.min(self.max_num_batched_tokens),
        }
    }

    /// Blocks of so many tokens.
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_size_tokens)
    }
}

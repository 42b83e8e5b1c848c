//! Settings of vLLM's scheduler.

use super::super::AsyncScheduling;

/// vLLM's options of the same names, and cache settings.
#[derive(Clone, Debug, Default)]
pub struct VllmConfig {
    /// Tokens that one KV block holds.
    pub block_size_tokens: u64,
    /// Upper bound on the tokens of a step.
    pub max_num_batched_tokens: u64,
    /// Upper bound on the requests that run at once.
    pub max_num_seqs: u64,
    /// Upper bound on the tokens of one request in a step with other requests; 0: no bound.
    pub long_prefill_token_threshold: u64,
    /// Blocks that an admission leaves free while other requests run.
    pub watermark_blocks: u64,
    /// True if a request is admitted only if blocks for all its tokens are free.
    pub reserve_full_isl: bool,
    /// True if the queue is ordered by priority, then by arrival.
    pub by_priority: bool,
    /// Mode of asynchronous scheduling.
    pub async_scheduling: AsyncScheduling,
    /// Pipeline stages, each with a step of its own in flight.
    pub stages: usize,
    /// True if computed blocks get keys.
    pub cache_enabled: bool,
    /// True if blocks of the answer get keys too.
    pub cache_output: bool,
}

impl VllmConfig {
    /// Upper bound on the steps in flight at one time.
    pub(super) fn steps_in_flight(&self) -> u64 {
        self.stages.max(1) as u64 + u64::from(self.async_scheduling.has_lookahead())
    }

    /// Upper bound on the tokens of a prompt chunk.
    pub(super) fn chunk_tokens(&self) -> u64 {
        match self.long_prefill_token_threshold {
            0 => self.max_num_batched_tokens,
            threshold => threshold.min(self.max_num_batched_tokens),
        }
    }

    /// Blocks for `tokens` tokens.
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_size_tokens)
    }
}

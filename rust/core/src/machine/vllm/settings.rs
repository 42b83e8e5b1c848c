//! Settings of vLLM's scheduler.

use super::super::AsyncScheduling;
use crate::names::named_values;

named_values! {
    /// Time of the decision on a request's next step over pipeline stages (vLLM's releases differ).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum StageSteps {
        /// Once its token has returned (0.15, and without asynchronous scheduling).
        #[default]
        Returned = "returned",
        /// At once; the first stage then waits until the last stage has the step before (0.16 to 0.22).
        Chained = "chained",
        /// As many decisions later as there are stages, one batch more being in flight (from 0.23).
        Spaced = "spaced",
    }
}

/// Pipeline stages, and the host's times around them.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelineConfig {
    /// Number of stages, each with a step of its own in flight; up to 1: none.
    pub stages: usize,
    /// Time of the decision on a request's next step.
    pub steps: StageSteps,
    /// Host time of each stage's worker to launch a batch.
    pub launch_ns: u64,
    /// Host time of the engine for each batch.
    pub engine_ns: u64,
    /// Host time of the engine for each sequence of a batch.
    pub sequence_ns: u64,
    /// True if the last stage's worker launches a batch while it computes the one before.
    pub is_async: bool,
    /// True if decisions follow one that found nothing to compute until the queue is full (from 0.23).
    pub fills: bool,
}

impl PipelineConfig {
    /// Upper bound on the batches in flight.
    pub(super) fn depth(&self) -> usize {
        self.stages.max(1) + usize::from(self.steps == StageSteps::Spaced)
    }
}

/// Bounds on what a step takes and on the requests that may be here: vLLM's options of the same names.
#[derive(Clone, Copy, Debug, Default)]
pub struct VllmLimits {
    /// Upper bound on the tokens of a step, at most `max_num_batched_tokens`.
    pub max_num_scheduled_tokens: u64,
    /// Upper bound on the requests that run at once.
    pub max_num_active_seqs: u64,
    /// Upper bound on the tokens of one request in a step with other requests; 0: no bound.
    pub long_prefill_token_threshold: u64,
    /// True if that bound is at least an equal share of `max_num_batched_tokens`.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Steps from one that computes a prompt to the next that may; 1: every step may.
    pub prefill_schedule_interval: u64,
    /// A request that comes is turned away if it would be one more than this many; `None`: no bound.
    pub max_num_queued_reqs: Option<u64>,
    /// A request that comes is turned away if prompts without a token have this many tokens; `None`: no bound.
    pub max_num_queued_tokens: Option<u64>,
}

/// vLLM's options of the same names, and cache settings.
#[derive(Clone, Debug, Default)]
pub struct VllmConfig {
    /// Tokens that one KV block holds.
    pub block_size_tokens: u64,
    /// Upper bound on the tokens of a step that the engine is built for.
    pub max_num_batched_tokens: u64,
    /// Bounds on steps and on requests.
    pub limits: VllmLimits,
    /// Blocks that an admission leaves free while other requests run.
    pub watermark_blocks: u64,
    /// True if a request is admitted only if blocks for all its tokens are free.
    pub reserve_full_isl: bool,
    /// True if the queue is ordered by priority, then by arrival.
    pub by_priority: bool,
    /// Mode of asynchronous scheduling.
    pub async_scheduling: AsyncScheduling,
    /// Pipeline stages.
    pub pipeline: PipelineConfig,
    /// True if computed blocks get keys.
    pub cache_enabled: bool,
    /// True if blocks of the answer get keys too.
    pub cache_output: bool,
    /// True if its prompts are read by machines that decode.
    pub is_producer: bool,
    /// True if it reads prompts that other machines compute.
    pub is_consumer: bool,
}

impl VllmConfig {
    /// Composition with asynchronous scheduling over stages where a token must return first is synchronous.
    #[must_use]
    pub fn composed_as_released(mut self) -> Self {
        self.pipeline.is_async = self.async_scheduling.has_lookahead();
        self.pipeline.fills = self.pipeline.steps == StageSteps::Spaced;
        if !self.pipeline.is_async {
            self.pipeline.steps = StageSteps::Returned;
        } else if self.pipeline.stages > 1 && self.pipeline.steps == StageSteps::Returned {
            self.async_scheduling = AsyncScheduling::None;
        }
        self
    }

    /// Upper bound on the steps in flight at one time.
    pub(super) fn steps_in_flight(&self) -> u64 {
        if self.pipeline.stages > 1 {
            return self.pipeline.depth() as u64;
        }
        1 + u64::from(self.async_scheduling.has_lookahead())
    }

    /// Upper bound on the tokens of a prompt chunk.
    pub(super) fn chunk_tokens(&self) -> u64 {
        match self.limits.long_prefill_token_threshold {
            0 => self.limits.max_num_scheduled_tokens,
            threshold => threshold.min(self.limits.max_num_scheduled_tokens),
        }
    }

    /// True if each further request may lower the tokens of one, so that a refused request may fit.
    pub(super) fn is_adaptive(&self) -> bool {
        let limits = &self.limits;
        limits.long_prefill_token_threshold > 0 && limits.long_prefill_token_threshold_adaptive
    }

    /// Upper bound on the tokens of one of `requests` requests that run or wait.
    pub(super) fn request_tokens(&self, requests: u64) -> u64 {
        let limits = &self.limits;
        match limits.long_prefill_token_threshold {
            threshold if threshold == 0 || requests < 2 => u64::MAX,
            threshold if self.is_adaptive() => {
                threshold.max(self.max_num_batched_tokens / requests)
            }
            threshold => threshold,
        }
    }

    /// Blocks for `tokens` tokens.
    pub(super) fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.block_size_tokens)
    }
}

//! The options of engines' schedulers, read from Python dataclasses.

use kvsim_core::batch::BatchConfig;
use kvsim_core::machine::sglang::{PriorityRules, ReleaseRules, SchedulePolicy, SglangConfig};
use kvsim_core::machine::vllm::{PipelineConfig, StageSteps, VllmConfig, VllmLimits};
use kvsim_core::machine::ReplicaConfig;
use pyo3::prelude::*;

use crate::argument::{from_attributes, from_names};

// `VllmRules`, `VllmLimits` and `SglangRules` of `serving.engine_rules`, `SglangRelease` of `serving.settings`
from_attributes! {
    VllmConfig { limits, watermark_blocks, reserve_full_isl, by_priority, pipeline, ..Self }
    VllmLimits {
        max_num_scheduled_tokens, max_num_active_seqs, long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive, prefill_schedule_interval, max_num_queued_reqs,
        max_num_queued_tokens
    }
    PipelineConfig { stages, steps, launch_ns, engine_ns, sequence_ns, ..Self }
    SglangConfig {
        schedule_policy, max_queued_requests, max_prefill_tokens, enable_mixed_chunk, schedule_conservativeness,
        priority, release, ..Self
    }
    PriorityRules { preempts_above }
    ReleaseRules {
        drops_finished_each_pass, keeps_row_of_chunk, stops_at_spent_budget, writes_after_step, waits_from_admission
    }
}

from_names! {
    SchedulePolicy: "schedule policy"
    StageSteps: "step of a pipeline"
}

/// The options of vLLM's scheduler, with the options common to all replicas.
pub fn vllm(config: &ReplicaConfig, batch: &BatchConfig, own: VllmConfig) -> VllmConfig {
    VllmConfig {
        block_size_tokens: batch.block_size_tokens,
        max_num_batched_tokens: batch.max_num_batched_tokens,
        async_scheduling: config.scheduling.async_scheduling,
        cache_enabled: batch.cache_enabled,
        cache_output: batch.cache_output,
        is_producer: config.role.sends().is_some(),
        is_consumer: config.role.receives().is_some(),
        ..own
    }
    .composed_as_released()
}

/// The options of SGLang's scheduler, with the options common to all replicas.
pub fn sglang(config: &ReplicaConfig, batch: &BatchConfig, own: SglangConfig) -> SglangConfig {
    SglangConfig {
        page_size: batch.block_size_tokens,
        chunked_prefill_size: batch.max_num_batched_tokens,
        max_running_requests: config.scheduling.max_num_seqs,
        cache_enabled: batch.cache_enabled,
        async_scheduling: config.scheduling.async_scheduling,
        ..own
    }
}

//! What an engine's own scheduler is told once, as dataclasses of Python say it.

use kvsim_core::batch::BatchConfig;
use kvsim_core::machine::sglang::{SchedulePolicy, SglangConfig, SglangScheduler};
use kvsim_core::machine::vllm::VllmConfig;
use kvsim_core::machine::ReplicaConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `serving.vllm.settings.VllmRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct VllmRules {
    long_prefill_token_threshold: u64,
    watermark_blocks: u64,
    reserve_full_isl: bool,
    by_priority: bool,
    stages: usize,
}

/// What vLLM's scheduler of a replica is told.
pub fn vllm(config: &ReplicaConfig, batch: &BatchConfig, rules: &VllmRules) -> VllmConfig {
    VllmConfig {
        block_size_tokens: batch.block_size_tokens,
        max_num_batched_tokens: batch.max_num_batched_tokens,
        max_num_seqs: config.max_num_seqs,
        long_prefill_token_threshold: rules.long_prefill_token_threshold,
        watermark_blocks: rules.watermark_blocks,
        reserve_full_isl: rules.reserve_full_isl,
        by_priority: rules.by_priority,
        stages: rules.stages,
        async_scheduling: config.async_scheduling,
        cache_enabled: batch.cache_enabled,
        cache_output: batch.cache_output,
    }
}

/// `serving.sglang.settings.SglangRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct SglangRules {
    schedule_policy: String,
    max_prefill_tokens: u64,
    enable_mixed_chunk: bool,
    schedule_conservativeness: f64,
}

/// SGLang's scheduler of a replica.
pub fn sglang(
    config: &ReplicaConfig,
    batch: &BatchConfig,
    rules: &SglangRules,
) -> PyResult<SglangScheduler> {
    let policy = SchedulePolicy::from_name(&rules.schedule_policy);
    Ok(SglangScheduler::new(SglangConfig {
        page_size: batch.block_size_tokens,
        chunked_prefill_size: batch.max_num_batched_tokens,
        max_prefill_tokens: rules.max_prefill_tokens,
        max_running_requests: config.max_num_seqs,
        schedule_policy: policy
            .ok_or_else(|| PyValueError::new_err("no schedule policy of the core"))?,
        enable_mixed_chunk: rules.enable_mixed_chunk,
        schedule_conservativeness: rules.schedule_conservativeness,
        async_scheduling: config.async_scheduling,
    }))
}

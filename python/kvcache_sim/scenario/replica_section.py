"""The section ``replica`` of a machine."""

from typing import Literal

from kvcache_sim.scenario.policy_names import QueueOrderName
from kvcache_sim.scenario.quantities import MAX_COUNT, DurationNs
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.serving.settings import AsyncScheduling, DuplicatePrefill, SchedulePolicy, SchedulerName
from kvcache_sim.tiers import COMPUTE, TIERS

_FASTEST = TIERS[COMPUTE]
#: Token budget where no service time passes: whole prompts, as the engines' own replays take them. A prompt
#: in chunks would ask SGLang's tree for room chunk by chunk and so evict other leaves.
WHOLE_PROMPTS_TOKENS = 1 << 20


class SpeculationSection(Section):
    """Speculative decoding: tokens that a decode step has drafted, and how many of them are right."""

    tokens: int = Field(3, ge=1, le=64, description="tokens drafted at a time")
    acceptance: list[float] | None = Field(
        None, description="by position, share of steps that accept the draft there; never rising"
    )
    mean_length: float | None = Field(
        None, ge=1, description="tokens that a step brings on the average, instead of acceptance"
    )
    draft_time: DurationNs = Field(0, description="time that a step takes longer for its drafts")
    eagle: bool = Field(False, description="EAGLE or MTP: the last block of a hit is computed again")


class ReplicaSection(Section):
    """The engine instance of a machine."""

    instant: bool = Field(False, description="no service time: one request after another")
    max_num_batched_tokens: int = Field(
        default_from=lambda given: WHOLE_PROMPTS_TOKENS if given.get("instant") else 8192,
        ge=1,
        le=1 << 22,
        description="token budget of a step; with instant 1048576",
    )
    max_num_seqs: int = Field(256, ge=1, le=1 << 20, description="most sequences that run together")
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="share of the GPU's memory that the engine takes, for capacity: auto"
    )
    sampler: Literal["sorting", "fused"] = Field(
        "sorting", description="for capacity: auto; fused: FlashInfer's, and vLLM's of 2026"
    )
    max_model_len: int | None = Field(
        None, ge=2, le=1 << 31, description="context window: most tokens of a prompt and its answer"
    )
    on_overflow: Literal["reject", "slide"] = Field(
        "reject", description="a longer request is rejected, or loses its oldest history"
    )
    step_time: str = Field("h100-llama-3-8b-tp1", description="step-time set by name, or a model file")
    links: str | None = Field(
        None, description="all-reduces of a roofline or of measured kernels: name or FILE.csv"
    )
    scheduler: SchedulerName = Field("kvsim", description="who composes the steps: kvsim, or an engine")
    watermark: float = Field(
        0.0, ge=0, lt=1, description="with vllm: share of blocks kept free at admissions while others run"
    )
    reserve_full_isl: bool = Field(True, description="with vllm: admit only what has room for all its tokens")
    long_prefill_token_threshold: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="with vllm: tokens of one request a step beside others; 0: all",
    )
    schedule_policy: SchedulePolicy = Field("fcfs", description="with sglang: who is looked at first")
    max_prefill_tokens: int = Field(
        16384, ge=1, le=MAX_COUNT, description="with sglang: tokens of prompts that a step takes up"
    )
    enable_mixed_chunk: bool = Field(False, description="with sglang: decode in steps of prompts too")
    schedule_conservativeness: float = Field(
        1.0, gt=0, le=100, description="with sglang: times the share of an answer that is reserved at first"
    )
    queue_order: QueueOrderName = Field("fcfs", description="who is admitted first")
    duplicate_prefill: DuplicatePrefill = Field(
        "recompute", description="when another request computes the next block: compute it too, or wait"
    )
    dp: int = Field(
        1, ge=1, le=4096, description="machines, one after another, that are ranks of one engine in lock step"
    )
    pp: int | None = Field(
        None, ge=1, le=64, description="with vllm: pipeline stages, as many micro-batches in flight; null: 1"
    )
    cp: int | None = Field(
        None, ge=1, le=64, description="GPUs that share out each block's tokens, for capacity: auto; null: 1"
    )
    speculation: SpeculationSection | None = Field(
        None, description="tokens drafted in decode steps; null: none"
    )
    step_overhead: DurationNs = Field(0, description="time between two steps")
    step_overhead_per_sequence: DurationNs = Field(
        0, description="the same for each sequence that decodes: input preparation, sampling, detokenising"
    )
    launch_per_layer: DurationNs = Field(
        0, description="the CPU's time to launch a layer's kernels: steps past 512 tokens take at least that"
    )
    async_scheduling: AsyncScheduling = Field(
        "none", description="decide a step ahead; answers end at a known length, or at a stop token"
    )
    client_offset: DurationNs = Field(0, description="HTTP and tokenising, before a request queues")
    client_offset_per_token: DurationNs = Field(0, description="the same for each token of its prompt")
    copy_submit: DurationNs = Field(
        0, description=f"CPU time to submit a piece of a copy to or from the {_FASTEST}, before a step"
    )
    copy_gpu_share: float = Field(
        0.0, ge=0, le=1, description=f"share of the {_FASTEST} that such a copy takes while it goes"
    )
    host: str | None = Field(
        None, description="measured host by name: overhead, scheduling and offsets that are not given"
    )

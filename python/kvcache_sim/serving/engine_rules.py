"""Rules of vLLM's and SGLang's schedulers, from the settings of a replica."""

from __future__ import annotations

from kvcache_sim.base.values import Value
from kvcache_sim.serving.settings import ReplicaSettings, SchedulePolicy, SglangRelease, StageSteps


class PipelineRules(Value):
    """Pipeline stages, when a request's next step is decided over them, and the host's times.

    ``launch_ns``: of each stage's worker; ``engine_ns`` and ``sequence_ns``: of the engine.
    """

    stages: int
    steps: StageSteps
    launch_ns: int
    engine_ns: int
    sequence_ns: int


class VllmLimits(Value):
    """vLLM's options of the same names; of those that have a default, the value that applies."""

    max_num_scheduled_tokens: int
    max_num_active_seqs: int
    long_prefill_token_threshold: int
    long_prefill_token_threshold_adaptive: bool
    prefill_schedule_interval: int
    max_num_queued_reqs: int | None
    max_num_queued_tokens: int | None


class VllmRules(Value):
    """vLLM's options of the same names; ``watermark_blocks`` stay free at an admission while others run."""

    limits: VllmLimits
    watermark_blocks: int
    reserve_full_isl: bool
    by_priority: bool
    pipeline: PipelineRules


def vllm_rules(settings: ReplicaSettings, capacity_blocks: int) -> VllmRules:
    """Return vLLM's rules for a pool of usable blocks; vLLM also counts its null block."""
    scheduled = settings.max_num_scheduled_tokens or settings.max_num_batched_tokens
    limits = VllmLimits(
        max_num_scheduled_tokens=min(scheduled, settings.max_num_batched_tokens),
        max_num_active_seqs=settings.max_num_active_seqs or settings.max_num_seqs,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=settings.long_prefill_token_threshold_adaptive,
        prefill_schedule_interval=settings.prefill_schedule_interval,
        max_num_queued_reqs=settings.max_num_queued_reqs,
        max_num_queued_tokens=settings.max_num_queued_tokens,
    )
    return VllmRules(
        limits=limits,
        watermark_blocks=int(settings.watermark * (capacity_blocks + 1)),
        reserve_full_isl=settings.reserve_full_isl,
        by_priority=settings.queue_order == "priority",
        pipeline=PipelineRules(
            settings.stages,
            settings.pp_steps,
            settings.stage_launch_ns,
            settings.step_overhead_ns,
            settings.step_overhead_per_sequence_ns,
        ),
    )


class PriorityRules(Value):
    """A request preempts running ones whose priority is larger by more than this; None: it waits."""

    preempts_above: int | None


class SglangRules(Value):
    """SGLang's options of the same names."""

    schedule_policy: SchedulePolicy
    max_queued_requests: int | None
    max_prefill_tokens: int
    enable_mixed_chunk: bool
    schedule_conservativeness: float
    priority: PriorityRules | None
    release: SglangRelease


def sglang_rules(settings: ReplicaSettings) -> SglangRules:
    """Return SGLang's rules from a replica's settings."""
    return SglangRules(
        settings.schedule_policy,
        settings.max_queued_requests,
        settings.max_prefill_tokens,
        settings.enable_mixed_chunk,
        settings.schedule_conservativeness,
        PriorityRules(settings.priority_preemption) if settings.queue_order == "priority" else None,
        settings.sglang_release,
    )


def headroom_tokens(page: int, kept_free_pages: int) -> int:
    """Return the free tokens that an empty GPU needs in addition to a request's KV and the reserved pages.

    An admission reserves less than the capacity minus a token and two pages (``init_req_max_new_tokens``).
    """
    return 1 + (2 - kept_free_pages) * page

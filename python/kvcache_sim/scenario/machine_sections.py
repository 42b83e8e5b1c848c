"""The sections of a machine: ``tiers``, and ``replica``, its engine instance."""

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr

from kvcache_sim.base.tiers import COMPUTE, LOAD_EDGES, STAGING, TIERS
from kvcache_sim.cache.settings import BlockForm, LowerEngine
from kvcache_sim.scenario.policy_kinds import QueueOrderName
from kvcache_sim.scenario.quantities import (
    MAX_FLOAT,
    Capacity,
    CapacityField,
    ContextField,
    Count,
    CountOrZero,
    DurationNs,
    Finite,
    Machines,
    RateBytesPerS,
)
from kvcache_sim.scenario.section import Section, about, extended
from kvcache_sim.serving.settings import (
    AsyncScheduling,
    DuplicatePrefill,
    SchedulePolicy,
    SchedulerName,
    StageSteps,
)


class TierSection(Section, kw_only=True):
    """One tier of a machine."""

    capacity: Annotated[
        CapacityField,
        about(f"blocks, tokens, a size (of all ranks), or unbounded; for the {TIERS[COMPUTE]} also auto"),
    ]
    policy: Annotated[str | None, about("eviction policy of this tier; null: cache.policy")] = None
    semantics: Annotated[
        LowerEngine | None,
        about(f"of the {TIERS[STAGING]}: an engine's own rules; null: our tree's (groups: its groups')"),
    ] = None
    chunk_tokens: Annotated[
        Count | None,
        about(
            f"of the {TIERS[STAGING]} with LMCache or vllm-offload: tokens of a chunk; null: cache.block_size"
        ),
    ] = None
    lazy_offload: Annotated[
        bool | None,
        about("of vllm-simple-kv-offload: true stores blocks next to be evicted; null: computed ones"),
    ] = None
    kv_ratio: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        about("bytes of a block below the GPU / on it (fp8, compressed); null: as the tier above"),
    ] = None
    encode: Annotated[RateBytesPerS | None, about("bytes written to this tier, encoded per second")] = None
    decode: Annotated[RateBytesPerS | None, about("bytes read from this tier, decoded per second")] = None

    def form(self, above: BlockForm) -> BlockForm:
        """Return the form of this tier's blocks; ``above``: of the tier above."""
        ratio = above.kv_ratio if self.kv_ratio is None else self.kv_ratio
        return BlockForm(ratio, self.encode, self.decode)


class _Tiers(Section, dict=True):
    """The tiers of a machine, fast to slow; a tier that is left out (or null) does not exist."""

    @cached_property
    def present(self) -> dict[str, TierSection]:
        """The existing tiers by name, from fast to slow."""
        return {name: section for name in TIERS if (section := getattr(self, name)) is not None}

    @cached_property
    def compute(self) -> TierSection:
        """The tier that computes."""
        section: TierSection = getattr(self, TIERS[COMPUTE])
        return section

    @cached_property
    def lower(self) -> dict[str, TierSection]:
        """The tiers below the GPU by name, from fast to slow."""
        return {name: section for name, section in self.present.items() if name != TIERS[COMPUTE]}


if TYPE_CHECKING:
    TiersSection = _Tiers

    UpperTier: TypeAlias = str
    LoadEdge: TypeAlias = str
else:
    _OTHERS = {name: (TierSection | None, None) for name in TIERS[COMPUTE + 1 :]}
    _OWN = (TierSection, TierSection(capacity=Capacity(auto=True)))
    TiersSection = extended(_Tiers, "TiersSection", {TIERS[COMPUTE]: _OWN, **_OTHERS})
    UpperTier = Literal[TIERS[:-1]]
    LoadEdge = Literal[LOAD_EDGES]


_FASTEST = TIERS[COMPUTE]
#: Token budget without service time: whole prompts, as in the engines' own replays. With chunked prompts
#: SGLang's tree would allocate chunk by chunk and evict other leaves.
WHOLE_PROMPTS_TOKENS = 1 << 20


class SpeculationSection(Section):
    """Speculative decoding: drafted tokens per decode step, and their acceptance."""

    tokens: Annotated[int, about("drafted tokens per decode step", ge=1, le=64)] = 3
    acceptance: Annotated[
        list[Finite] | None, about("by position, share of steps that accept that draft; non-increasing")
    ] = None
    mean_length: Annotated[
        Annotated[float, Meta(ge=1, le=MAX_FLOAT)] | None,
        about("mean tokens per decode step, instead of acceptance"),
    ] = None
    draft_time: Annotated[DurationNs, about("additional time of a step for its drafts")] = 0
    eagle: Annotated[bool, about("EAGLE or MTP: the last block of a hit is recomputed")] = False


class ReplicaSection(Section):
    """The engine instance of a machine."""

    instant: Annotated[bool, about("no service time: one request after another")] = False
    max_num_batched_tokens: Annotated[
        int, about("token budget of a step; with instant 1048576", ge=1, le=1 << 22)
    ] = 0  # see __post_init__
    max_num_seqs: Annotated[int, about("most sequences in a batch", ge=1, le=1 << 20)] = 256
    gpu_memory_utilization: Annotated[
        float, about("share of the GPU's memory that the engine uses, for capacity: auto", gt=0, le=1)
    ] = 0.9
    mem_fraction_static: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        about("the same with a release of SGLang: share for weights and KV; null: by the release's rule"),
    ] = None
    sampler: Annotated[
        Literal["sorting", "triton", "fused"],
        about("of capacity: auto and sums of kernels; sorting: vLLM to 0.16, triton: to 0.20, fused: later"),
    ] = "sorting"
    sampling: Annotated[
        Literal["model", "plain"],
        about("with sums of kernels: top-k and top-p as in the model's generation_config, or neither"),
    ] = "model"
    sustained_clocks: Annotated[
        bool, about("with sums of kernels: GPU clocks under a sustained load, not those of a kernel alone")
    ] = True
    release: Annotated[
        str | None,
        about(
            "of the engine, such as vllm@0.19: defaults of left-out keys, memory; null: with auto the newest"
        ),
    ] = None
    max_model_len: Annotated[
        ContextField | None,
        about("most tokens of a prompt and its answer; null: the model's; auto or -1: also fits the GPU"),
    ] = None
    allow_long_max_model_len: Annotated[
        bool, about("accept a max_model_len above the model's, as VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    ] = False
    on_overflow: Annotated[
        Literal["reject", "slide"], about("longer requests: rejected, or truncated by their oldest history")
    ] = "reject"
    step_time: Annotated[str, about("step-time set by name, or a model file")] = "h100-llama-3.1-8b-tp1"
    links: Annotated[
        str | None, about("all-reduces of a roofline or of measured kernels: name or FILE.csv")
    ] = None
    scheduler: Annotated[SchedulerName, about("scheduler of the steps: kvsim's, or an engine's")] = "kvsim"
    watermark: Annotated[
        float, about("with vllm: share of blocks kept free at admissions while others run", ge=0, lt=1)
    ] = 0.0
    reserve_full_isl: Annotated[bool, about("with vllm: admit a request only if all its tokens fit")] = True
    long_prefill_token_threshold: Annotated[
        CountOrZero, about("with vllm: most tokens of a long prompt per step; 0: all")
    ] = 0
    long_prefill_token_threshold_adaptive: Annotated[
        bool, about("with vllm: of that bound at least max_num_batched_tokens by requests that run or wait")
    ] = False
    max_num_scheduled_tokens: Annotated[
        Count | None, about("with vllm: most tokens of a step; null: max_num_batched_tokens")
    ] = None
    max_num_active_seqs: Annotated[
        Count | None, about("with vllm: most running requests; null: max_num_seqs")
    ] = None
    prefill_schedule_interval: Annotated[
        Count, about("with vllm: steps from one with prompts to the next; 1: any step may have some")
    ] = 1
    max_num_queued_reqs: Annotated[
        CountOrZero | None,
        about("with vllm: most requests that wait or run; one more is turned away; null: any"),
    ] = None
    max_num_queued_tokens: Annotated[
        CountOrZero | None,
        about("with vllm: tokens of prompts without an answer at which requests are turned away; null: any"),
    ] = None
    max_queued_requests: Annotated[
        CountOrZero | None,
        about("with sglang: most waiting requests; one more is turned away; null: any"),
    ] = None
    schedule_policy: Annotated[SchedulePolicy, about("with sglang: order of the waiting queue")] = "fcfs"
    max_prefill_tokens: Annotated[Count, about("with sglang: most prompt tokens of a step")] = 16384
    enable_mixed_chunk: Annotated[bool, about("with sglang: prefill and decode in one step")] = False
    schedule_conservativeness: Annotated[
        float, about("with sglang: factor of the initially reserved share of an answer", gt=0, le=100)
    ] = 1.0
    queue_order: Annotated[QueueOrderName, about("order of admission")] = "fcfs"
    priority_preemption: Annotated[
        CountOrZero | None,
        about("with sglang: running requests leave for one whose priority is smaller by more; null: never"),
    ] = 10
    duplicate_prefill: Annotated[
        DuplicatePrefill, about("when another request computes the next block: compute it too, or wait")
    ] = "recompute"
    dp: Annotated[Machines, about("consecutive machines that are ranks of one engine in lockstep")] = 1
    pp: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        about("with vllm: pipeline stages and micro-batches in flight; null: 1"),
    ] = None
    pp_steps: Annotated[
        StageSteps,
        about(
            "with pp and async_scheduling: when a request's next step is decided, as vLLM's releases differ"
        ),
    ] = "spaced"
    stage_launch: Annotated[DurationNs, about("with pp: CPU time of each stage to launch a micro-batch")] = 0
    cp: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        about("GPUs that split each block's tokens, for capacity: auto; null: 1"),
    ] = None
    speculation: Annotated[SpeculationSection | None, about("tokens drafted in decode steps; null: none")] = (
        None
    )
    step_overhead: Annotated[DurationNs, about("time between two steps")] = 0
    step_overhead_per_sequence: Annotated[
        DurationNs,
        about("the same per decoding sequence: input preparation, sampling, detokenization"),
    ] = 0
    launch_per_layer: Annotated[
        DurationNs,
        about("CPU time to launch a layer's kernels: lower bound of steps past 512 tokens"),
    ] = 0
    eager_chunks: Annotated[
        bool, about("no CUDA graph holds a prefill chunk: launch_per_layer bounds all steps with one")
    ] = False
    step_extra: Annotated[
        DurationNs, about("time of every step that a sum of kernels lacks: small kernels, gaps, copies")
    ] = 0
    step_extra_per_layer: Annotated[DurationNs, about("the same per layer of the model")] = 0
    async_scheduling: Annotated[
        AsyncScheduling, about("schedule one step in advance; answers end by length or stop token")
    ] = "none"
    client_offset: Annotated[DurationNs, about("HTTP and tokenization, before a request queues")] = 0
    client_offset_per_token: Annotated[DurationNs, about("the same per prompt token")] = 0
    copy_submit: Annotated[
        DurationNs, about(f"CPU time per piece to submit a copy to or from the {_FASTEST}, before a step")
    ] = 0
    copy_gpu_share: Annotated[
        float, about(f"share of the {_FASTEST}'s throughput that a copy uses", ge=0, le=1)
    ] = 0.0
    host: Annotated[
        str | None,
        about("measured host by name, or none: sets overheads and offsets not given; null: the release's"),
    ] = None

    def __post_init__(self) -> None:
        """Fill in the default that depends on another key."""
        if not self.max_num_batched_tokens:
            tokens = WHOLE_PROMPTS_TOKENS if self.instant else 8192
            force_setattr(self, "max_num_batched_tokens", tokens)

"""Every key of a scenario, with its type, default and meaning: YAML is checked against it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from kvcache_sim.base.tier_table import ROWS
from kvcache_sim.base.tiers import COMPUTE, LOAD_EDGES, READ_OF_ONE, STAGING, TIERS
from kvcache_sim.cache.settings import (
    Accounting,
    FullHit,
    LayerGroups,
    Lookup,
    Overflow,
    RemoteDisk,
    Semantics,
    Touch,
)
from kvcache_sim.scenario.cluster_sections import (
    AdaptersSection,
    FleetSection,
    ModelsSection,
    SharedPoolSection,
    TenantsSection,
)
from kvcache_sim.scenario.machine_sections import LoadEdge, ReplicaSection, TiersSection, UpperTier
from kvcache_sim.scenario.policy_kinds import (
    AdmissionName,
    ChannelChoiceName,
    FetchName,
    PrefetchName,
    RouterName,
    WriteName,
)
from kvcache_sim.scenario.quantities import (
    MAX_COUNT,
    Count,
    CountOrZero,
    DurationNs,
    EdgeField,
    Machines,
    PositiveBytes,
    PositiveNs,
    RateBytesPerS,
    RequestRuleField,
)
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.section import Section, about, extended
from kvcache_sim.scenario.trace_section import RetentionSection, TraceSection
from kvcache_sim.scenario.validation import NAME_PATTERN
from kvcache_sim.serving.handover.rules import RULES
from kvcache_sim.serving.settings import (
    FirstToken,
    HandoverPath,
    HandoverTransfer,
    Role,
)

if TYPE_CHECKING:
    HandoverDecision: TypeAlias = str
else:
    HandoverDecision = Literal[("always", *RULES)]
_FASTEST, _LANDING, _LOWER = TIERS[COMPUTE], TIERS[STAGING], " and ".join(TIERS[STAGING:])
_PATHS = f"from {_FASTEST} to {_FASTEST}, or over both machines' {_LANDING}"
_BY_UPPER = "{" + ", ".join(f"{tier}: …" for tier in TIERS[:-1]) + "}"
#: Larger prices could overflow when multiplied by the machines and hours of a run.
_MAX_PRICE = 1e12


class CacheSection(Section):
    """The KV cache: block size, reuse semantics, eviction and admission."""

    enabled: Annotated[bool, about("false: nothing is reused")] = True
    block_size: Annotated[Count, about("tokens per block; left out: the trace's, or 512")] = 512
    semantics: Annotated[Semantics, about("cache semantics: kvsim's tree, or an engine's own")] = "tree"
    layer_groups: Annotated[
        LayerGroups | None,
        about("windows and states: by-kind (null with vllm) or as-full attention (null else)"),
    ] = None
    policy: Annotated[str, about("eviction policy of all tiers, or file.py:Name")] = "lru"
    admission: Annotated[AdmissionName, about("share of a finished request that is cached")] = "all"
    cache_output: Annotated[bool, about("generated tokens are cached too")] = True
    touch: Annotated[Touch, about("update of recency for lru: at a request's end, or at its admission")] = (
        "release"
    )
    eviction_batch_blocks: Annotated[Count, about("least number of blocks per eviction")] = 1
    overflow: Annotated[
        Overflow, about("evicted blocks that the tier below cannot store yet: they wait, or are dropped")
    ] = "wait"
    full_hit: Annotated[FullHit, about("tokens computed when the whole prompt hits")] = "prefill-remainder"
    accounting: Annotated[Accounting, about("exact blocks, or a count of unique tokens")] = "detailed"
    scheduler_aware_window: Annotated[
        CountOrZero, about("number of waiting requests whose cached blocks are evicted last")
    ] = 0
    discard_on_finish: Annotated[bool, about("blocks are dropped after their last request")] = False
    lookup_time: Annotated[DurationNs, about("time of one prefix lookup")] = 0
    retention_interval: Annotated[
        CountOrZero | None, about("tokens between kept windows and states; 0: at prompts' ends; null: all")
    ] = 0
    kv_dtype: Annotated[str | None, about("format of the KV cache: bf16, fp8, ...; null: the model's")] = None
    kv_bytes_per_token: Annotated[PositiveBytes | None, about("KV of a token; null: the model's")] = None


class SessionViewSection(Section):
    """Sessions visible to the policies: a follow-up of another session is treated as a new request."""

    max_sessions: Annotated[Count | None, about("most visible sessions; null: all")] = None
    ttl: Annotated[PositiveNs | None, about("time after a turn; null: no limit")] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=2, le=1 << 31)] | None,
        about("KV capacity of a session: longer turns lose their oldest history; null: no limit"),
    ] = None


class PrefixViewSection(Section):
    """Prefixes that requests of different sessions may share."""

    min_tokens: Annotated[Count | None, about("shortest shared prefix; null: one block")] = None
    min_seen: Annotated[Count, about("earlier prompts that contain the prefix")] = 1
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        about("size of a machine's store of shared prefixes; null: the tiers' capacities"),
    ] = None


class ClusterSection(Section):
    """The number of machines, and memory that they share."""

    machines: Annotated[Machines, about("how many")] = 1
    pool: Annotated[
        SharedPoolSection | None,
        about("memory of a machine without a GPU that all machines share; null: none"),
    ] = None


class MachineSection(Section):
    """One machine with its own settings merged over the common ones."""

    tiers: TiersSection = TiersSection()
    replica: ReplicaSection = ReplicaSection()
    role: Role = "both"


class PoolsSection(Section):
    """Machines by role: the first ones prefill, the next ones decode; further machines do both."""

    prefill: Annotated[int, about("machines that prefill and hand over", ge=0, le=4096)] = 0
    decode: Annotated[int, about("machines that decode handed-over requests", ge=0, le=4096)] = 0


class HandoverSection(Section):
    """The hand-over of a request's KV from its prefill machine to its decode machine."""

    path: Annotated[HandoverPath, about(_PATHS)] = "gpu-direct"
    transfer: Annotated[HandoverTransfer, about("after the prompt, or layer by layer")] = "at-end"
    first_token: Annotated[
        FirstToken, about("machine of the first token; decode's follows the hand-over")
    ] = "decode"
    router: Annotated[RouterName, about("choice of the decode machine, as router.policy")] = "least-loaded"
    decide: Annotated[HandoverDecision, about("which requests are handed over, by their decode machine")] = (
        "always"
    )
    threshold_tokens: Annotated[
        CountOrZero | None, about("threshold (2048), llm-d (16), dynamo-isl (2048): uncached prompt tokens")
    ] = None
    threshold_share: Annotated[
        float, about("dynamo-isl: uncached share of a prompt, below which it stays", ge=0, le=1)
    ] = 0.7
    min_prompt_tokens: Annotated[CountOrZero, about("llm-d: shorter prompts are not handed over")] = 0
    prefill_busy: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)] | None,
        about("dynamo prefill-load: most tokens to compute / max_num_batched_tokens"),
    ] = None
    kv_ratio: Annotated[float, about("bytes of a block on the wire / on the GPU", gt=0, le=1)] = 1.0
    encode: Annotated[RateBytesPerS | None, about("bytes sent, encoded per second")] = None
    decode: Annotated[RateBytesPerS | None, about("bytes received, decoded per second")] = None


class ChannelSection(Section, kw_only=True):
    """A channel. Edges assigned to the same channel contend; ``scope: machine`` creates one per machine."""

    bandwidth: Annotated[RateBytesPerS, about("25GB/s counts bytes, 400Gb/s bits")]
    latency: Annotated[DurationNs, about("from the last byte sent to its arrival")] = 0
    piece_overhead: Annotated[DurationNs, about("least time of one piece (a block's layer)")] = 0
    piece_gap: Annotated[DurationNs, about("idle time between two pieces")] = 0
    piece_submit: Annotated[DurationNs, about("CPU time per piece, spent before a job's first byte")] = 0
    sharing: Annotated[Literal["fifo", "fair"], about("concurrent jobs: in order, or at equal rates")] = (
        "fifo"
    )
    priority: Annotated[Literal["in-order", "loads-first"], about("who goes first")] = "in-order"
    latency_occupies: Annotated[bool, about("true: the channel is busy during the latency too")] = False
    scope: Annotated[
        Literal["machine", "cluster", "pair"],
        about("one per machine, one for all, or one per pair of machines"),
    ] = "machine"
    edges: Annotated[
        list[str],
        about(f"such as {LOAD_EDGES[0]}, or 0:{LOAD_EDGES[0]}, {READ_OF_ONE} (kvsim help channels)"),
    ]


def by_event(channel: object) -> bool:
    """Return True if the times of a channel's transfers are final only as they end: fair, or loads first."""
    return getattr(channel, "sharing", "fifo") != "fifo" or getattr(channel, "priority", "") == "loads-first"


class FetchSection(Section):
    """Loads of KV from lower tiers to the GPU."""

    policy: Annotated[FetchName, about("load blocks of lower tiers, or recompute them")] = "always"
    timeout: Annotated[DurationNs | None, about("with policy timeout")] = None
    timeout_per_ki_token: Annotated[
        DurationNs | None,
        about("with hicache's storage and timeout: additional time per 1,024 tokens; null: 250ms"),
    ] = None
    lookup: Annotated[Lookup, about(f"lookup on this machine, or also in other machines' {_LOWER} tiers")] = (
        "local"
    )
    remote_disk: Annotated[RemoteDisk, about("read over both channels at once, or staged")] = "direct"
    read_buffer_layers: Annotated[
        Count | None, about("most layers loaded before their computation; null: all")
    ] = None
    layer_pipelining: Annotated[bool, about("start a layer as soon as its KV has arrived")] = True
    exclusive: Annotated[list[LoadEdge], about("edges on which a promoted block leaves the lower tier")] = []


class WriteSection(Section):
    """Writes of KV to lower tiers: one policy for all edges, or one per upper tier."""

    policy: Annotated[
        WriteName | dict[UpperTier, WriteName],
        about(f"at eviction or immediately; or {_BY_UPPER}, by upper tier"),
    ] = "back"
    selective_uses: Annotated[
        int, about("with policy selective: uses before a block is written", ge=2, le=MAX_COUNT)
    ] = 2


class PrefetchSection(Section):
    """Prefetching of KV to faster tiers before its request is scheduled."""

    policy: Annotated[PrefetchName, about("blocks loaded before their request is scheduled")] = "none"
    share: Annotated[
        float, about(f"share of the {_LANDING} that prefetched blocks may occupy", gt=0, le=1)
    ] = 0.5
    lead: Annotated[DurationNs, about("with session: time before the next turn")] = 1_000_000_000
    threshold: Annotated[Count | None, about("hicache's storage: least tokens of a prefetch; null: 256")] = (
        None
    )


class _Prices(Section, kw_only=True):
    """Prices in one currency, for ``cost`` in the summary; they change no result."""

    gpu_hour: Annotated[float, about("price of one GPU for an hour", ge=0, le=_MAX_PRICE)]
    currency: Annotated[
        Annotated[str, Meta(min_length=1, max_length=16)] | None,
        about("currency of the prices, such as USD; null: not named"),
    ] = None
    gpus_per_machine: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        about("GPUs per machine; null: those of its step-time set"),
    ] = None


if TYPE_CHECKING:
    CostSection = _Prices
else:
    CostSection = extended(
        _Prices,
        "CostSection",
        {
            row.price: (
                Annotated[
                    float, about(f"price of a GiB of {row.name} tier for a month", ge=0, le=_MAX_PRICE)
                ],
                0.0,
            )
            for row in ROWS
            if row.price
        },
    )


class MeasureSection(Section):
    """Requests that the summary measures; the run itself is complete."""

    warmup: Annotated[
        EdgeField | None, about("excluded start: auto, 10%, 5m or 1000 requests; null: none")
    ] = None
    cooldown: Annotated[EdgeField | None, about("excluded end: 10%, 5m or 1000 requests; null: none")] = None
    duration: Annotated[
        PositiveNs | None,
        about("only what arrives so long after the first request, or after primers and warm-up; null: all"),
    ] = None


class _LimitsSection(Section):
    """Latency limits of requests."""

    ttft: Annotated[PositiveNs | None, about("limit of the time to first token; null: none")] = None
    tpot: Annotated[
        PositiveNs | None, about("limit of the mean time per token after the first; null: none")
    ] = None
    e2e: Annotated[PositiveNs | None, about("limit of the time to the last token; null: none")] = None


class SloClassSection(_LimitsSection, kw_only=True):
    """Requests with limits of their own; limits that are not given do not apply."""

    when: Annotated[
        RequestRuleField,
        about("rule, such as 'input_tokens > 32000 and priority == 1', or a member of the rows"),
    ]


class SloSection(_LimitsSection):
    """Service level objectives: they change no result, only the attainment in the summary."""

    classes: Annotated[
        dict[str, SloClassSection], about("by name; a request belongs to the first class whose rule matches")
    ] = {}


class ScenarioModel(Section):
    """The whole scenario."""

    name: Annotated[str, about("names the run directory", pattern=NAME_PATTERN)] = "run"
    seed: Annotated[int, about("seed of every random stream", ge=0, le=2**63 - 1)] = 0
    model: Annotated[str | None, about("language model; null: the one of the step-time set")] = None
    trace: TraceSection | None = None
    #: A generator's ``kind`` with its own keys, or TraceChanges.
    workload: Annotated[dict[str, Any], about("kind and that generator's keys")] = {}
    cache: CacheSection = CacheSection()
    session_view: SessionViewSection = SessionViewSection()
    prefix_view: PrefixViewSection = PrefixViewSection()
    tiers: TiersSection = TiersSection()
    replica: ReplicaSection = ReplicaSection()
    cluster: ClusterSection = ClusterSection()
    pools: PoolsSection = PoolsSection()
    machines: Annotated[list[dict[str, Any]], about("overrides for single machines, in order")] = []
    router: RouterSection = RouterSection()
    handover: HandoverSection = HandoverSection()
    channels: Annotated[dict[str, ChannelSection], about("links, by name")] = {}
    channel_choice: Annotated[
        ChannelChoiceName, about("policy that chooses among the channels of one edge")
    ] = "assigned"
    fetch: FetchSection = FetchSection()
    write: WriteSection = WriteSection()
    prefetch: PrefetchSection = PrefetchSection()
    fleet: FleetSection = FleetSection()
    measure: Annotated[
        MeasureSection | None, about("part of the run that the summary is measured on; null: all of it")
    ] = None
    slo: Annotated[
        SloSection | None, about("limits of latency; null: no attainment and goodput in the summary")
    ] = None
    retention: Annotated[
        RetentionSection | None,
        about("retention hints in the trace's rows; null: ignored"),
    ] = None
    tenants: Annotated[
        TenantsSection | None,
        about("shares and quotas by a member of the trace's rows; null: ignored"),
    ] = None
    models: Annotated[
        ModelsSection | None,
        about("several models, each on its own machines; null: one model"),
    ] = None
    adapters: Annotated[
        AdaptersSection | None,
        about("adapters that requests use, part of their blocks' keys; null: ignored"),
    ] = None
    cost: Annotated[CostSection | None, about("prices; null: no cost in the summary")] = None

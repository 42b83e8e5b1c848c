"""Every key of a scenario, with its type, its default and what it means: YAML is checked against it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from kvcache_sim.cache.settings import (
    Accounting,
    FullHit,
    LayerGroups,
    Lookup,
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
from kvcache_sim.scenario.policy_names import (
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
from kvcache_sim.scenario.replica_section import ReplicaSection
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.section import Section, about, extended
from kvcache_sim.scenario.tiers_section import LoadEdge, TiersSection, UpperTier
from kvcache_sim.scenario.trace_section import RetentionSection, TraceSection
from kvcache_sim.serving.settings import (
    FirstToken,
    HandoverPath,
    HandoverTransfer,
    Role,
)
from kvcache_sim.tier_table import ROWS
from kvcache_sim.tiers import COMPUTE, LOAD_EDGES, READ_OF_ONE, STAGING, TIERS

_FASTEST, _LANDING, _LOWER = TIERS[COMPUTE], TIERS[STAGING], " and ".join(TIERS[STAGING:])
_PATHS = f"from {_FASTEST} to {_FASTEST}, or over both machines' {_LANDING}"
_BY_UPPER = "{" + ", ".join(f"{tier}: …" for tier in TIERS[:-1]) + "}"
#: Beyond it a price times the machines and hours of a run may not be a number any more.
_MAX_PRICE = 1e12


class CacheSection(Section):
    """How blocks are kept."""

    enabled: Annotated[bool, about("false: nothing is reused")] = True
    block_size: Annotated[Count, about("tokens of a block; left out: the trace's, or 512")] = 512
    semantics: Annotated[Semantics, about("rules of reuse: our tree, or an engine's own")] = "tree"
    layer_groups: Annotated[
        LayerGroups | None,
        about("windows and states: by-kind (null with vllm), or as-full attention (null else)"),
    ] = None
    policy: Annotated[str, about("eviction policy of all tiers, or file.py:Name")] = "lru"
    admission: Annotated[AdmissionName, about("how much of a finished request is kept")] = "all"
    cache_output: Annotated[bool, about("generated tokens are kept too")] = True
    touch: Annotated[Touch, about("what makes blocks recent for lru: a request's end, or its admission")] = (
        "release"
    )
    eviction_batch_blocks: Annotated[
        Count, about("where a tier must make room, so many blocks go at once at least")
    ] = 1
    full_hit: Annotated[FullHit, about("what is computed when all may hit")] = "prefill-remainder"
    accounting: Annotated[Accounting, about("blocks of the trie, or a count of unique tokens")] = "detailed"
    scheduler_aware_window: Annotated[
        CountOrZero, about("so many waiting requests whose cached blocks are evicted last")
    ] = 0
    discard_on_finish: Annotated[bool, about("nothing is kept once its last request has ended")] = False
    lookup_time: Annotated[DurationNs, about("time of one look-up")] = 0
    retention_interval: Annotated[
        CountOrZero | None, about("tokens between kept windows and states; 0: at prompts' ends; null: all")
    ] = 0
    kv_dtype: Annotated[str | None, about("format of the KV cache: bf16, fp8, ...; null: the model's")] = None
    kv_bytes_per_token: Annotated[PositiveBytes | None, about("KV of a token; null: the model's")] = None


class SessionViewSection(Section):
    """Which sessions are known: a follow-up of an unknown one is like any other request."""

    max_sessions: Annotated[Count | None, about("most sessions; null: all")] = None
    ttl: Annotated[PositiveNs | None, about("time after a turn; null: for ever")] = None


class PrefixViewSection(Section):
    """Which prefixes may be shared between requests that do not go on from each other."""

    min_tokens: Annotated[Count | None, about("shortest; null: one block")] = None
    min_seen: Annotated[Count, about("how often it was in a prompt before")] = 1
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        about("all shared prefixes together, with accounting simplified; null: the tier's"),
    ] = None


class ClusterSection(Section):
    """How many machines there are, and what memory they share."""

    machines: Annotated[Machines, about("how many")] = 1
    pool: Annotated[
        SharedPoolSection | None,
        about("memory on a machine without a GPU that all write and read; null: none"),
    ] = None


class MachineSection(Section):
    """One machine after its own settings were laid over the common ones."""

    tiers: TiersSection = TiersSection()
    replica: ReplicaSection = ReplicaSection()
    role: Role = "both"


class PoolsSection(Section):
    """Machines by role, the first ones prefill, the next ones decode; any further one does both."""

    prefill: Annotated[int, about("machines that compute prompts and hand over", ge=0, le=4096)] = 0
    decode: Annotated[int, about("machines that generate what others have computed", ge=0, le=4096)] = 0


class HandoverSection(Section):
    """How a request's KV goes from its prefill machine to its decode machine."""

    path: Annotated[HandoverPath, about(_PATHS)] = "gpu-direct"
    transfer: Annotated[HandoverTransfer, about("after the prompt, or each layer as computed")] = "at-end"
    first_token: Annotated[FirstToken, about("who answers: decode's waits for the hand-over")] = "decode"
    router: Annotated[RouterName, about("which decode machine: as router.policy")] = "least-loaded"


class ChannelSection(Section, kw_only=True):
    """A channel. Edges that name the same one contend; ``scope: machine`` makes one on each machine."""

    bandwidth: Annotated[RateBytesPerS, about("25GB/s counts bytes, 400Gb/s bits")]
    latency: Annotated[DurationNs, about("from the last byte sent to its arrival")] = 0
    piece_overhead: Annotated[DurationNs, about("least time of one piece (a block's layer)")] = 0
    piece_gap: Annotated[DurationNs, about("between the bytes of one piece and those of the next")] = 0
    piece_submit: Annotated[DurationNs, about("the CPU's for each piece, all before a job's first byte")] = 0
    sharing: Annotated[Literal["fifo", "fair"], about("how jobs at the same time share it")] = "fifo"
    priority: Annotated[Literal["in-order", "loads-first"], about("who goes first")] = "in-order"
    latency_occupies: Annotated[bool, about("true: the next job waits for the latency too")] = False
    scope: Annotated[Literal["machine", "cluster", "pair"], about("one a machine, or one for all")] = (
        "machine"
    )
    edges: Annotated[
        list[str],
        about(f"such as {LOAD_EDGES[0]}, or 0:{LOAD_EDGES[0]}, {READ_OF_ONE} (kvsim help channels)"),
    ]


class FetchSection(Section):
    """How KV comes up to the GPU."""

    policy: Annotated[FetchName, about("load what a lower tier has, or compute it again")] = "always"
    timeout: Annotated[DurationNs | None, about("with policy timeout")] = None
    timeout_per_ki_token: Annotated[
        DurationNs | None,
        about("with hicache's storage and timeout: more for each 1,024 tokens; null: 250ms"),
    ] = None
    lookup: Annotated[Lookup, about(f"also in the {_LOWER} tiers of the other machines?")] = "local"
    remote_disk: Annotated[RemoteDisk, about("read it over two channels at once, or staged")] = "direct"
    read_buffer_layers: Annotated[
        Count | None, about("layers of a load ahead of their computation; null: all")
    ] = None
    layer_pipelining: Annotated[bool, about("compute a layer as soon as its KV has arrived")] = True
    exclusive: Annotated[list[LoadEdge], about("edges on which a promoted block leaves the lower tier")] = []


class WriteSection(Section):
    """How KV goes down: one policy for all edges, or one an upper tier."""

    policy: Annotated[
        WriteName | dict[UpperTier, WriteName],
        about(f"at eviction or at once; or {_BY_UPPER}, by upper tier"),
    ] = "back"
    selective_uses: Annotated[int, about("with policy selective: uses before it", ge=2, le=MAX_COUNT)] = 2


class PrefetchSection(Section):
    """Moving KV up before it is asked for."""

    policy: Annotated[PrefetchName, about("what moves up ahead of its request")] = "none"
    share: Annotated[float, about(f"part of the {_LANDING} that prefetched blocks may take", gt=0, le=1)] = (
        0.5
    )
    lead: Annotated[DurationNs, about("with session: how long before the next turn")] = 1_000_000_000
    threshold: Annotated[Count | None, about("hicache's storage: fewest tokens worth it; null: 256")] = None


class _Prices(Section, kw_only=True):
    """Prices in one currency, for ``cost`` in the summary; they change no result."""

    gpu_hour: Annotated[float, about("price of one GPU for an hour", ge=0, le=_MAX_PRICE)]
    gpus_per_machine: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        about("GPUs that one machine takes; null: those of its step-time set"),
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
    """Which requests the summary is measured on; the run stays whole."""

    warmup: Annotated[
        EdgeField | None, about("left out before: auto, 10%, 5m or 1000 requests; null: nothing")
    ] = None
    cooldown: Annotated[
        EdgeField | None, about("left out behind: 10%, 5m or 1000 requests; null: nothing")
    ] = None


class _LimitsSection(Section):
    """The longest times that requests may take."""

    ttft: Annotated[PositiveNs | None, about("longest time to the first token; null: any")] = None
    tpot: Annotated[PositiveNs | None, about("longest mean time of a token after the first; null: any")] = (
        None
    )
    e2e: Annotated[PositiveNs | None, about("longest time to the last token; null: any")] = None


class SloClassSection(_LimitsSection, kw_only=True):
    """Requests with limits of their own, those that are given here and no others."""

    when: Annotated[
        RequestRuleField,
        about("which, such as 'input_tokens > 32000 and priority == 1', or a member of the trace's rows"),
    ]


class SloSection(_LimitsSection):
    """Service level objectives: they change no result, only what the summary says of it."""

    classes: Annotated[
        dict[str, SloClassSection], about("by name; a request is of the first whose rule names it")
    ] = {}


class ScenarioModel(Section):
    """The whole scenario."""

    name: Annotated[str, about("names the run directory", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = (
        "run"
    )
    seed: Annotated[int, about("every random number comes from it", ge=0, le=2**63 - 1)] = 0
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
    machines: Annotated[list[dict[str, Any]], about("changes of single machines")] = []
    router: RouterSection = RouterSection()
    handover: HandoverSection = HandoverSection()
    channels: Annotated[dict[str, ChannelSection], about("links, by name")] = {}
    channel_choice: Annotated[ChannelChoiceName, about("who chooses among the channels of one edge")] = (
        "assigned"
    )
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
        about("hints of the trace's rows on the blocks they leave; null: nobody asks"),
    ] = None
    tenants: Annotated[
        TenantsSection | None,
        about("shares and quotas by a member of the trace's rows; null: nobody asks who sent what"),
    ] = None
    models: Annotated[
        ModelsSection | None,
        about("several models, each on machines of its own; null: every machine serves all"),
    ] = None
    adapters: Annotated[
        AdaptersSection | None,
        about("adapters that requests ask for, part of their blocks' keys; null: nobody asks"),
    ] = None
    cost: Annotated[CostSection | None, about("prices; null: no cost in the summary")] = None

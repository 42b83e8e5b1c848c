"""Every key of a scenario, with its type, its default and what it means: YAML is checked against it."""

from typing import TYPE_CHECKING, Any, Literal

from kvcache_sim.cache.settings import (
    Accounting,
    FullHit,
    LayerGroups,
    Lookup,
    RemoteDisk,
    Semantics,
    Touch,
)
from kvcache_sim.scenario.fleet_section import FleetSection
from kvcache_sim.scenario.models_section import AdaptersSection, ModelsSection
from kvcache_sim.scenario.offline_section import OfflineSection
from kvcache_sim.scenario.policy_names import (
    AdmissionName,
    ChannelChoiceName,
    FetchName,
    PrefetchName,
    RouterName,
    WriteName,
)
from kvcache_sim.scenario.pool_section import SharedPoolSection
from kvcache_sim.scenario.quantities import (
    MAX_COUNT,
    DurationNs,
    EdgeField,
    RateBytesPerS,
    RequestRuleField,
    SizeBytes,
)
from kvcache_sim.scenario.replica_section import ReplicaSection
from kvcache_sim.scenario.retention_section import RetentionSection
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.scenario.tenants_section import TenantsSection
from kvcache_sim.scenario.tiers_section import LoadEdge, TiersSection, UpperTier
from kvcache_sim.scenario.trace_section import TraceSection
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

    enabled: bool = Field(True, description="false: nothing is reused")
    block_size: int = Field(
        512, ge=1, le=MAX_COUNT, description="tokens of a block; left out: the trace's, or 512"
    )
    semantics: Semantics = Field("tree", description="rules of reuse: our tree, or an engine's own")
    layer_groups: LayerGroups | None = Field(
        None, description="windows and states: by-kind (null with vllm), or as-full attention (null else)"
    )
    policy: str = Field("lru", description="eviction policy of all tiers, or file.py:Name")
    admission: AdmissionName = Field("all", description="how much of a finished request is kept")
    cache_output: bool = Field(True, description="generated tokens are kept too")
    touch: Touch = Field(
        "release", description="what makes blocks recent for lru: a request's end, or its admission"
    )
    eviction_batch_blocks: int = Field(
        1, ge=1, le=MAX_COUNT, description="where a tier must make room, so many blocks go at once at least"
    )
    full_hit: FullHit = Field("prefill-remainder", description="what is computed when all may hit")
    accounting: Accounting = Field("detailed", description="blocks of the trie, or a count of unique tokens")
    scheduler_aware_window: int = Field(
        0, ge=0, le=MAX_COUNT, description="so many waiting requests whose cached blocks are evicted last"
    )
    discard_on_finish: bool = Field(False, description="nothing is kept once its last request has ended")
    lookup_time: DurationNs = Field(0, description="time of one look-up")
    retention_interval: int | None = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="tokens between kept windows and states; 0: at prompts' ends; null: all",
    )
    kv_dtype: str | None = Field(
        None, description="format of the KV cache: bf16, fp8, ...; null: the model's"
    )
    kv_bytes_per_token: SizeBytes | None = Field(None, ge=1, description="KV of a token; null: the model's")


class SessionViewSection(Section):
    """Which sessions are known: a follow-up of an unknown one is like any other request."""

    max_sessions: int | None = Field(None, ge=1, le=MAX_COUNT, description="most sessions; null: all")
    ttl: DurationNs | None = Field(None, ge=1, description="time after a turn; null: for ever")


class PrefixViewSection(Section):
    """Which prefixes may be shared between requests that do not go on from each other."""

    min_tokens: int | None = Field(None, ge=1, le=MAX_COUNT, description="shortest; null: one block")
    min_seen: int = Field(1, ge=1, le=MAX_COUNT, description="how often it was in a prompt before")
    max_tokens: int | None = Field(
        None, ge=1, description="all shared prefixes together, with accounting simplified; null: the tier's"
    )


class ClusterSection(Section):
    """How many machines there are, and what memory they share."""

    machines: int = Field(1, ge=1, le=4096, description="how many")
    pool: SharedPoolSection | None = Field(
        None, description="memory on a machine without a GPU that all write and read; null: none"
    )


class MachineSection(Section):
    """One machine after its own settings were laid over the common ones."""

    tiers: TiersSection = TiersSection()
    replica: ReplicaSection = ReplicaSection()
    role: Role = "both"


class PoolsSection(Section):
    """Machines by role, the first ones prefill, the next ones decode; any further one does both."""

    prefill: int = Field(0, ge=0, le=4096, description="machines that compute prompts and hand over")
    decode: int = Field(0, ge=0, le=4096, description="machines that generate what others have computed")


class HandoverSection(Section):
    """How a request's KV goes from its prefill machine to its decode machine."""

    path: HandoverPath = Field(
        "gpu-direct",
        description=_PATHS,
    )
    transfer: HandoverTransfer = Field("at-end", description="after the prompt, or each layer as computed")
    first_token: FirstToken = Field("decode", description="who answers: decode's waits for the hand-over")
    router: RouterName = Field("least-loaded", description="which decode machine: as router.policy")


class ChannelSection(Section):
    """A channel. Edges that name the same one contend; ``scope: machine`` makes one on each machine."""

    bandwidth: RateBytesPerS = Field(description="25GB/s counts bytes, 400Gb/s bits")
    latency: DurationNs = Field(0, description="from the last byte sent to its arrival")
    piece_overhead: DurationNs = Field(0, description="least time of one piece (a block's layer)")
    piece_gap: DurationNs = Field(0, description="between the bytes of one piece and those of the next")
    piece_submit: DurationNs = Field(0, description="the CPU's for each piece, all before a job's first byte")
    sharing: Literal["fifo", "fair"] = Field("fifo", description="how jobs at the same time share it")
    priority: Literal["in-order", "loads-first"] = Field("in-order", description="who goes first")
    latency_occupies: bool = Field(False, description="true: the next job waits for the latency too")
    scope: Literal["machine", "cluster", "pair"] = Field(
        "machine", description="one a machine, or one for all"
    )
    edges: list[str] = Field(
        description=f"such as {LOAD_EDGES[0]}, or 0:{LOAD_EDGES[0]}, {READ_OF_ONE} (kvsim help channels)"
    )


class FetchSection(Section):
    """How KV comes up to the GPU."""

    policy: FetchName = Field("always", description="load what a lower tier has, or compute it again")
    timeout: DurationNs | None = Field(None, description="with policy timeout")
    timeout_per_ki_token: DurationNs | None = Field(
        None, description="with hicache's storage and timeout: more for each 1,024 tokens; null: 250ms"
    )
    lookup: Lookup = Field("local", description=f"also in the {_LOWER} tiers of the other machines?")
    remote_disk: RemoteDisk = Field("direct", description="read it over two channels at once, or staged")
    read_buffer_layers: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="layers of a load ahead of their computation; null: all"
    )
    layer_pipelining: bool = Field(True, description="compute a layer as soon as its KV has arrived")
    exclusive: list[LoadEdge] = Field(
        default_factory=list, description="edges on which a promoted block leaves the lower tier"
    )


class WriteSection(Section):
    """How KV goes down: one policy for all edges, or one an upper tier."""

    policy: WriteName | dict[UpperTier, WriteName] = Field(
        "back", description=f"at eviction or at once; or {_BY_UPPER}, by upper tier"
    )
    selective_uses: int = Field(2, ge=2, le=MAX_COUNT, description="with policy selective: uses before it")


class PrefetchSection(Section):
    """Moving KV up before it is asked for."""

    policy: PrefetchName = Field("none", description="what moves up ahead of its request")
    share: float = Field(
        0.5, gt=0, le=1, description=f"part of the {_LANDING} that prefetched blocks may take"
    )
    lead: DurationNs = Field(1_000_000_000, description="with session: how long before the next turn")
    threshold: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="hicache's storage: fewest tokens worth it; null: 256"
    )


class _Prices(Section):
    """Prices in one currency, for ``cost`` in the summary; they change no result."""

    gpu_hour: float = Field(ge=0, le=_MAX_PRICE, description="price of one GPU for an hour")
    gpus_per_machine: int | None = Field(
        None, ge=1, le=1024, description="GPUs that one machine takes; null: those of its step-time set"
    )


if TYPE_CHECKING:
    CostSection = _Prices
else:
    _A_MONTH = {
        row.price: (
            float,
            Field(0.0, ge=0, le=_MAX_PRICE, description=f"price of a GiB of {row.name} tier for a month"),
        )
        for row in ROWS
        if row.price
    }
    CostSection = _Prices.extended("CostSection", _A_MONTH)


class MeasureSection(Section):
    """Which requests the summary is measured on; the run stays whole."""

    warmup: EdgeField | None = Field(
        None, description="left out before: auto, 10%, 5m or 1000 requests; null: nothing"
    )
    cooldown: EdgeField | None = Field(
        None, description="left out behind: 10%, 5m or 1000 requests; null: nothing"
    )


class _LimitsSection(Section):
    """The longest times that requests may take."""

    ttft: DurationNs | None = Field(None, ge=1, description="longest time to the first token; null: any")
    tpot: DurationNs | None = Field(
        None, ge=1, description="longest mean time of a token after the first; null: any"
    )
    e2e: DurationNs | None = Field(None, ge=1, description="longest time to the last token; null: any")


class SloClassSection(_LimitsSection):
    """Requests with limits of their own, those that are given here and no others."""

    when: RequestRuleField = Field(
        description="which, such as 'input_tokens > 32000 and priority == 1', or a member of the trace's rows"
    )


class SloSection(_LimitsSection):
    """Service level objectives: they change no result, only what the summary says of it."""

    classes: dict[str, SloClassSection] = Field(
        default_factory=dict, description="by name; a request is of the first whose rule names it"
    )


class ScenarioModel(Section):
    """The whole scenario."""

    name: str = Field(
        "run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="names the run directory"
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="every random number comes from it")
    model: str | None = Field(None, description="language model; null: the one of the step-time set")
    trace: TraceSection | None = None
    #: A generator's ``kind`` with its own keys, or TraceChanges.
    workload: dict[str, Any] = Field(default_factory=dict, description="kind and that generator's keys")
    cache: CacheSection = CacheSection()
    session_view: SessionViewSection = SessionViewSection()
    prefix_view: PrefixViewSection = PrefixViewSection()
    tiers: TiersSection = TiersSection()
    replica: ReplicaSection = ReplicaSection()
    cluster: ClusterSection = ClusterSection()
    pools: PoolsSection = PoolsSection()
    machines: list[dict[str, Any]] = Field(default_factory=list, description="changes of single machines")
    router: RouterSection = RouterSection()
    handover: HandoverSection = HandoverSection()
    channels: dict[str, ChannelSection] = Field(default_factory=dict, description="links, by name")
    channel_choice: ChannelChoiceName = Field(
        "assigned", description="who chooses among the channels of one edge"
    )
    fetch: FetchSection = FetchSection()
    write: WriteSection = WriteSection()
    prefetch: PrefetchSection = PrefetchSection()
    fleet: FleetSection = FleetSection()
    measure: MeasureSection | None = Field(
        None, description="part of the run that the summary is measured on; null: all of it"
    )
    slo: SloSection | None = Field(
        None, description="limits of latency; null: no attainment and goodput in the summary"
    )
    retention: RetentionSection | None = Field(
        None, description="hints of the trace's rows on the blocks they leave; null: nobody asks"
    )
    offline: OfflineSection | None = Field(
        None, description="requests in batches, each when the last has ended; null: as they arrive"
    )
    tenants: TenantsSection | None = Field(
        None, description="shares and quotas by a member of the trace's rows; null: nobody asks who sent what"
    )
    models: ModelsSection | None = Field(
        None, description="several models, each on machines of its own; null: every machine serves all"
    )
    adapters: AdaptersSection | None = Field(
        None, description="adapters that machines load when requests ask for them; null: nobody asks"
    )
    cost: CostSection | None = Field(None, description="prices; null: no cost in the summary")

"""The section ``router`` of a scenario."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, field

from kvcache_sim.scenario.policy_kinds import RouterName
from kvcache_sim.scenario.quantities import MAX_COUNT, MAX_FLOAT, Count, CountOrZero, DurationNs, PositiveNs
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.serving.router.scorers import SCORERS
from kvcache_sim.serving.settings import AffinityMode, Controller, IndexKind, RouterSettings

if TYPE_CHECKING:
    ScorerName: TypeAlias = str
else:
    ScorerName = Literal[tuple(SCORERS)]


class RouterViewSection(Section):
    """The router's view of the machines' load."""

    interval: Annotated[DurationNs, about("time between two polls of the engines; 0: at every decision")] = 0


class RouterIndexSection(Section):
    """The router's view of the machines' caches."""

    kind: Annotated[IndexKind, about("the caches themselves, or a gateway's own record of sent requests")] = (
        "truth"
    )
    eviction_interval: Annotated[
        PositiveNs, about("gateway-tree: time between two evictions down to its size")
    ] = 120_000_000_000


class AffinitySection(Section):
    """Bindings of sessions to machines, in front of the policy."""

    mode: Annotated[
        AffinityMode, about("each session by itself, or all that one session started together")
    ] = "session"
    ttl: Annotated[PositiveNs, about("time after a binding's last request for which it holds")] = (
        300_000_000_000
    )


class RouterSection(Section):
    """The policy that routes requests to machines, and its settings."""

    policy: Annotated[RouterName, about("routing policy")] = "round-robin"
    load_threshold: Annotated[
        float, about("longest-prefix: imbalance threshold, largest / smallest load", ge=1, le=MAX_FLOAT)
    ] = 2.0
    overlap_weight: Annotated[
        float,
        about(
            "overlap-cost, dynamo-kv: weight of a prefill block relative to a decode block",
            ge=0,
            le=MAX_FLOAT,
        ),
    ] = 1.0
    overlap_credit: Annotated[
        float, about("dynamo-kv: credit of a cached block on the GPU, in prefill blocks", ge=0, le=MAX_FLOAT)
    ] = 1.0
    temperature: Annotated[
        float, about("dynamo-kv: softmax temperature over costs; 0: least cost", ge=0, le=1e6)
    ] = 0.0
    cache_threshold: Annotated[
        float,
        about("cache-aware, two-tier (0.5): least cached share of a prompt to route by cache", ge=0, le=1),
    ] = 0.3
    balance_abs_threshold: Annotated[
        CountOrZero, about("cache-aware, two-tier (32): imbalance threshold in requests (absolute), and")
    ] = 64
    balance_rel_threshold: Annotated[
        float,
        about(
            "cache-aware, two-tier (1.1): the largest load above this multiple of the smallest",
            ge=1,
            le=MAX_FLOAT,
        ),
    ] = 1.5
    scorers: Annotated[
        dict[ScorerName, Annotated[float, Meta(ge=0, le=MAX_COUNT)]], about("weighted: weight by scorer")
    ] = field(default_factory=RouterSettings().scorers.copy)
    kv_aware_threshold: Annotated[CountOrZero, about("kvaware: most uncached tokens of a prompt")] = 2000
    load_weight: Annotated[
        float, about("loadaware: weight of load relative to the cached share", ge=0, le=1e6)
    ] = 1.0
    max_load_skew: Annotated[
        Annotated[float, Meta(ge=1, le=1e6)] | None,
        about("consistent-hashing: most load / mean load; null: any"),
    ] = 1.5
    hotspot_detection: Annotated[bool, about("lmetric: leave out the machines with a hot prefix")] = True
    class_prefix_blocks: Annotated[Count, about("lmetric: leading blocks that name a class of prompts")] = 4
    window_requests: Annotated[Count, about("lmetric: choices among which a class has its share")] = 1000
    update_interval: Annotated[PositiveNs, about("aimd, two-tier-adaptive: time between two updates")] = (
        100_000_000
    )
    load_scale: Annotated[
        float,
        about("aimd, two-tier-adaptive (32): requests that damp differences of load", ge=1, le=MAX_FLOAT),
    ] = 8.0
    controller: Annotated[Controller, about("aimd: how the weight of load follows the imbalance")] = "aimd"
    affinity: Annotated[
        AffinitySection | None,
        about("bindings of sessions to machines; null: the policy routes each request"),
    ] = None
    view: RouterViewSection = RouterViewSection()
    index: RouterIndexSection = RouterIndexSection()
    index_blocks: Annotated[
        Count | None, about("size of the router's own index per machine; null: none, or its default")
    ] = None
    index_delay: Annotated[DurationNs, about("time from a first token until the index has its prompt")] = 0

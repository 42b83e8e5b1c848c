"""The section ``router`` of a scenario."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, field

from kvcache_sim.scenario.policy_names import RouterName
from kvcache_sim.scenario.quantities import MAX_COUNT, MAX_FLOAT, Count, CountOrZero, DurationNs, PositiveNs
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.serving.router.scorers import SCORERS
from kvcache_sim.serving.settings import IndexKind, RouterSettings

if TYPE_CHECKING:
    ScorerName: TypeAlias = str
else:
    ScorerName = Literal[tuple(SCORERS)]


class RouterViewSection(Section):
    """What a router knows of the machines' load."""

    interval: Annotated[DurationNs, about("engines are polled so often; 0: at every decision")] = 0


class RouterIndexSection(Section):
    """What a router takes for the machines' caches."""

    kind: Annotated[IndexKind, about("what they have, or what it sent them, by a gateway's rules")] = "truth"
    eviction_interval: Annotated[PositiveNs, about("gateway-tree: how often it is cut back to its size")] = (
        120_000_000_000
    )


class RouterSection(Section):
    """Which machine a request goes to."""

    policy: Annotated[RouterName, about("who chooses the machine")] = "round-robin"
    load_threshold: Annotated[
        float, about("longest-prefix: uneven from this largest / smallest load on", ge=1, le=MAX_FLOAT)
    ] = 2.0
    overlap_weight: Annotated[
        float,
        about(
            "overlap-cost, dynamo-kv: weight of a block of prefill against one of decode", ge=0, le=MAX_FLOAT
        ),
    ] = 1.0
    temperature: Annotated[float, about("dynamo-kv: 0: the least cost; more: spread", ge=0, le=1e6)] = 0.0
    cache_threshold: Annotated[
        float, about("cache-aware: share of a prompt above which who has it takes it", ge=0, le=1)
    ] = 0.3
    balance_abs_threshold: Annotated[
        CountOrZero, about("cache-aware: uneven where loads differ by more requests, and")
    ] = 64
    balance_rel_threshold: Annotated[
        float,
        about("cache-aware: the largest load is more than so many times the smallest", ge=1, le=MAX_FLOAT),
    ] = 1.5
    scorers: Annotated[
        dict[ScorerName, Annotated[float, Meta(ge=0, le=MAX_COUNT)]], about("weighted: weight by scorer")
    ] = field(default_factory=lambda: RouterSettings().scorers)
    kv_aware_threshold: Annotated[CountOrZero, about("kvaware: tokens of a prompt that may be missing")] = (
        2000
    )
    load_weight: Annotated[
        float, about("loadaware: weight of load against the cached share", ge=0, le=1e6)
    ] = 1.0
    max_load_skew: Annotated[
        Annotated[float, Meta(ge=1, le=1e6)] | None,
        about("consistent-hashing: most load / mean load; null: any"),
    ] = 1.5
    view: RouterViewSection = RouterViewSection()
    index: RouterIndexSection = RouterIndexSection()
    index_blocks: Annotated[
        Count | None, about("size of the router's own index, a machine; null: none, or its own")
    ] = None
    index_delay: Annotated[DurationNs, about("from a first token until the index has its prompt")] = 0

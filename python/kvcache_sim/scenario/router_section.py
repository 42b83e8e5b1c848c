"""The section ``router`` of a scenario."""

from typing import Annotated

from kvcache_sim.scenario.policy_names import RouterName
from kvcache_sim.scenario.quantities import MAX_COUNT, DurationNs
from kvcache_sim.scenario.section import Checked, Field, Section
from kvcache_sim.serving.router.scorers import SCORERS
from kvcache_sim.serving.settings import IndexKind, RouterSettings


def _known_scorers(given: dict[str, float]) -> dict[str, float]:
    """Refuse an unknown scorer, a negative weight, and weights that are all zero."""
    for name, weight in given.items():
        if name not in SCORERS:
            raise ValueError(f"no such scorer {name!r}; expected any of {', '.join(SCORERS)}")
        if not 0 <= weight <= MAX_COUNT:
            raise ValueError(f"{name}: expected a weight from 0 on")
    if not any(given.values()):
        raise ValueError("no scorer has a weight: nothing would tell machines apart")
    return given


class RouterViewSection(Section):
    """What a router knows of the machines' load."""

    interval: DurationNs = Field(0, description="engines are polled so often; 0: at every decision")


class RouterIndexSection(Section):
    """What a router takes for the machines' caches."""

    kind: IndexKind = Field("truth", description="what they have, or what it sent them, by a gateway's rules")
    eviction_interval: DurationNs = Field(
        120_000_000_000, ge=1, description="gateway-tree: how often it is cut back to its size"
    )


class RouterSection(Section):
    """Which machine a request goes to."""

    policy: RouterName = Field("round-robin", description="who chooses the machine")
    load_threshold: float = Field(
        2.0, ge=1, description="longest-prefix: uneven from this largest / smallest load on"
    )
    overlap_weight: float = Field(
        1.0, ge=0, description="overlap-cost, dynamo-kv: weight of a block of prefill against one of decode"
    )
    temperature: float = Field(0.0, ge=0, le=1e6, description="dynamo-kv: 0: the least cost; more: spread")
    cache_threshold: float = Field(
        0.3, ge=0, le=1, description="cache-aware: share of a prompt above which who has it takes it"
    )
    balance_abs_threshold: int = Field(
        64, ge=0, le=MAX_COUNT, description="cache-aware: uneven where loads differ by more requests, and"
    )
    balance_rel_threshold: float = Field(
        1.5, ge=1, description="cache-aware: the largest load is more than so many times the smallest"
    )
    scorers: Annotated[dict[str, float], Checked(_known_scorers)] = Field(
        default_factory=lambda: RouterSettings().scorers, description="weighted: weight by scorer"
    )
    kv_aware_threshold: int = Field(
        2000, ge=0, le=MAX_COUNT, description="kvaware: tokens of a prompt that may be missing"
    )
    load_weight: float = Field(
        1.0, ge=0, le=1e6, description="loadaware: weight of load against the cached share"
    )
    max_load_skew: float | None = Field(
        1.5, ge=1, le=1e6, description="consistent-hashing: most load / mean load; null: any"
    )
    view: RouterViewSection = RouterViewSection()
    index: RouterIndexSection = RouterIndexSection()
    index_blocks: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="size of the router's own index, a machine; null: none, or its own",
    )
    index_delay: DurationNs = Field(0, description="from a first token until the index has its prompt")

"""The abilities of each kind of store: one row per kind, and the settings that it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Protocol

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.base.values import Value, field
from kvcache_sim.cache.settings import (
    Accounting,
    CacheSettings,
    LayerGroups,
    LowerEngine,
    Semantics,
)
from kvcache_sim.policies.table import POLICIES


class Ability(Enum):
    """An ability that some stores lack."""

    #: Blocks are also kept below the GPU, and move between tiers (``TieredStore``).
    LOWER_TIERS = auto()
    #: An unbounded GPU.
    NO_BOUND = auto()
    #: Each tier has its own eviction policy, time to live included.
    TIER_POLICIES = auto()
    #: Admissions renew blocks, not only releases.
    TOUCH_AT_ADMISSION = auto()
    #: Several blocks are evicted at once for a shortfall.
    EVICTION_BATCH = auto()
    #: Explicit renewal of blocks: those of waiting requests.
    TOUCH = auto()
    #: Explicit discarding of a finished request's blocks.
    DISCARD = auto()
    #: Sessions end and prefixes are admitted by the views' rules.
    VIEWS = auto()
    #: Blocks have names: they can be handed over, and a router can index them.
    BLOCKS = auto()


class StoreKind(Value):
    """One kind of store: the abilities it lacks, with reasons, and its rules of block allocation."""

    #: Value of ``cache.semantics``, or of ``cache.accounting`` where that is ``simplified``.
    name: str
    #: Lacking abilities, each with its reason.
    lacks: Mapping[Ability, str] = field(default_factory=dict)
    #: Supported eviction policies; None: all, and plug-ins.
    policies: tuple[str, ...] | None = None
    #: Eviction policies of an engine's own tier below; None: those of the GPU.
    lower_policies: tuple[str, ...] | None = None
    #: Number of the engine's tiers below the GPU.
    lower_tiers: int = 1
    #: The write policies of an engine's own tier below.
    lower_writes: tuple[str, ...] = ("back",)
    #: Schedulers of machines with its lower tiers.
    schedulers: tuple[str, ...] = ("kvsim",)
    #: Number of lower tiers below an engine's own scheduler; None: all.
    scheduled_tiers: int | None = None
    #: Blocks get their keys when the step that fills them begins, not when it ends.
    commits_at_begin: bool = False
    #: Every decoding request requests free blocks at every step, needed or not.
    asks_every_step: bool = False
    #: A page of more than one token is never allocated.
    keeps_page_free: bool = False

    def tiers_below(self, scheduler: str) -> int:
        """Return the number of tiers below the GPU of a machine with a scheduler."""
        if scheduler == "kvsim" or self.scheduled_tiers is None:
            return self.lower_tiers
        return self.scheduled_tiers


def _engine(name: str, policies: tuple[str, ...], **rules: bool) -> StoreKind:
    """Return the kind of a store with the rules of a real engine's GPU."""
    own_rules = f"semantics {name} has rules of its own"
    keeps = f"semantics {name} keeps every block that fits"
    own_order = f"semantics {name} has an order of its own"
    lacks = {
        Ability.LOWER_TIERS: f"semantics {name} has a {TIERS[COMPUTE]} tier only",
        Ability.NO_BOUND: f"semantics {name} needs a bound",
        Ability.TIER_POLICIES: own_order,
        Ability.TOUCH_AT_ADMISSION: own_order,
        Ability.EVICTION_BATCH: own_rules,
        Ability.TOUCH: own_rules,
        Ability.DISCARD: keeps,
        Ability.VIEWS: own_rules,
    }
    return StoreKind(name, lacks, policies, None, 1, ("back",), ("kvsim",), **rules)


_TOKENS = "cache.accounting simplified keeps tokens, not blocks"
_OLDEST = "cache.accounting simplified evicts the oldest"

#: A tree of blocks on any number of tiers; it has every ability.
TREE = StoreKind("tree")

_POOL = "the tree keeps a model's cache groups (cache.layer_groups by-kind) in one pool, in order of recency"

#: A tree of several cache groups' blocks in one pool.
TREE_OF_GROUPS = StoreKind("tree", dict.fromkeys(Ability, _POOL), ("lru",))

#: A count of unique tokens.
TOKENS = StoreKind(
    "simplified",
    {
        Ability.LOWER_TIERS: "cache.accounting simplified counts one tier's tokens",
        Ability.TIER_POLICIES: _OLDEST,
        Ability.TOUCH_AT_ADMISSION: _TOKENS,
        Ability.EVICTION_BATCH: _TOKENS,
        Ability.TOUCH: _TOKENS,
        Ability.DISCARD: _TOKENS,
        Ability.BLOCKS: "cache.accounting simplified has no blocks",
    },
)

#: Under detailed accounting, by ``cache.semantics``.
SEMANTICS: dict[Semantics, StoreKind] = {
    "tree": TREE,
    "vllm": _engine("vllm", ("lru",), commits_at_begin=True),
    "sglang": _engine(
        "sglang",
        tuple(row.variant for row in POLICIES if row.family == "sglang"),
        asks_every_step=True,
        keeps_page_free=True,
    ),
}


def _with_lower(
    semantics: Semantics, policies: tuple[str, ...] | None = None, writes: tuple[str, ...] = ("back",)
) -> StoreKind:
    """Return an engine's kind with a tier of the engine's own below; ``policies`` None: the GPU's."""
    kind = SEMANTICS[semantics]
    lacks = dict(kind.lacks)
    del lacks[Ability.LOWER_TIERS]
    return replace(kind, lacks=lacks, lower_policies=policies, lower_writes=writes)


#: By the rules of the tier below: an engine's GPU with the engine's own lower tier.
WITH_LOWER: dict[LowerEngine, StoreKind] = {
    "vllm-offload": replace(_with_lower("vllm", ("lru", "arc")), schedulers=("kvsim", "vllm")),
    "vllm-simple-kv-offload": replace(_with_lower("vllm", ("lru",)), schedulers=("vllm",)),
    "lmcache": replace(
        _with_lower("vllm", ("lru", "lfu", "fifo", "mru")),
        lower_tiers=2,
        scheduled_tiers=1,
        schedulers=("kvsim", "vllm"),
    ),
    "lmcache-server": replace(_with_lower("vllm", ("lru", "arc")), lower_tiers=2),
    "hicache": replace(
        _with_lower("sglang", writes=("back", "through", "selective")),
        lower_tiers=2,
        schedulers=("kvsim", "sglang"),
    ),
    "groups": StoreKind(
        "tree",
        {ability: why for ability, why in TREE_OF_GROUPS.lacks.items() if ability is not Ability.LOWER_TIERS},
        ("lru",),
        ("lru",),
        lower_writes=("back", "through"),
    ),
}


def lower_kinds(gpu: StoreKind) -> list[str]:
    """Return the kinds of tiers that can lie below an engine's GPU."""
    return [name for name, kind in WITH_LOWER.items() if kind.name == gpu.name]


#: Setting of the cache → the ability that it needs if it is not at its default.
_NEEDS = {
    "discard_on_finish": Ability.DISCARD,
    "admission": Ability.DISCARD,
    "scheduler_aware_window": Ability.TOUCH,
    "touch": Ability.TOUCH_AT_ADMISSION,
    "eviction_batch_blocks": Ability.EVICTION_BATCH,
    "overflow": Ability.EVICTION_BATCH,
}


class CacheChoices(Protocol):
    """The settings of the cache that need abilities of its store, of a scenario or of a cluster."""

    @property
    def semantics(self) -> Semantics:
        """Rules of reuse: the tree's, or an engine's own."""
        ...

    @property
    def accounting(self) -> Accounting:
        """Blocks, or a count of unique tokens."""
        ...

    @property
    def layer_groups(self) -> LayerGroups | None:
        """``by-kind`` if each kind of layer keeps its own blocks; None: the default of ``semantics``."""
        ...

    @property
    def policy(self) -> str:
        """Eviction policy of all tiers."""
        ...


def store_kind(cache: CacheChoices) -> StoreKind:
    """Return the kind of store that the settings select; UsageError for an unknown name."""
    semantics, accounting = cache.semantics, cache.accounting
    if semantics not in SEMANTICS:
        raise UsageError(
            "no such rules of reuse", "cache.semantics", repr(semantics), f"one of {', '.join(SEMANTICS)}"
        )
    if accounting not in ("detailed", "simplified"):
        raise UsageError("no such accounting", "cache.accounting", repr(accounting), "detailed or simplified")
    if accounting != "detailed":
        return TOKENS
    if isinstance(cache, CacheSettings) and cache.lower_semantics is not None:
        return WITH_LOWER[cache.lower_semantics]
    if semantics == "tree" and cache.layer_groups == "by-kind":
        return TREE_OF_GROUPS
    return SEMANTICS[semantics]


def beyond_store(cache: CacheChoices) -> Iterator[tuple[str, str]]:
    """Yield (setting, reason) for the settings of the cache that its kind of store does not support."""
    kind = store_kind(cache)
    if kind is TOKENS and cache.semantics != "tree":
        yield "accounting", SEMANTICS[cache.semantics].lacks[Ability.VIEWS]
    for key, ability in _NEEDS.items():
        if ability in kind.lacks and getattr(cache, key) != _default(key):
            yield key, kind.lacks[ability]
    if kind is TOKENS and cache.policy != _default("policy"):
        yield "policy", kind.lacks[Ability.TIER_POLICIES]


def _default(key: str) -> Any:
    return getattr(CacheSettings(), key)

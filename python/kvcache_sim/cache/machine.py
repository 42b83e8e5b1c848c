"""Construction of a machine's cache, for the simulation and for manual cache operations."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim import _core
from kvcache_sim.base.tiers import COMPUTE, LOAD_EDGES, STAGING, TIERS, WRITE_EDGES
from kvcache_sim.base.values import Value, field
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.prefetch import PREFETCH, PREFETCHES
from kvcache_sim.cache.prefetch.policy import PrefetchPolicy
from kvcache_sim.cache.settings import (
    BlockForm,
    CacheSettings,
    FormsInCore,
    MovementSettings,
    PoolSettings,
    TierSettings,
    forms_in_core,
)
from kvcache_sim.cache.store import SharesPrefixes
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.cache.stores import CoreStore, StoreMaker
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.cache.write.edge import EdgeWrites, edge_writes
from kvcache_sim.channels.choice import CHANNEL_CHOICE, CHOICES
from kvcache_sim.channels.cluster import Channels, Edges
from kvcache_sim.engine import Engine


class MachineTiers(Value):
    """The tiers of one machine, fast to slow, and the channel of each of its edges by name.

    ``edge_channels`` names the channel of each edge, ``"gpu->cpu"``, ``"cpu->gpu"`` and so on; edges (or
    machines) with the same channel contend. ``edge_rails``: all channels of the edges with several channels,
    in the scenario's order.
    """

    tiers: tuple[TierSettings, ...]
    edge_channels: dict[str, str] = field(default_factory=dict)
    edge_rails: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Cache settings, if they differ from those of the cluster.
    cache: CacheSettings | None = None
    #: The form of blocks from another GPU.
    wire: BlockForm = BlockForm()


class Machine(Value):
    """One machine's cache: its store with the eviction policy of each tier, its channels and policies."""

    number: int
    #: Names of its tiers, fast to slow.
    tiers: tuple[str, ...]
    cache: CacheSettings
    movement: MovementSettings
    engine: Engine
    store: CoreStore
    #: The same store, if it is a tree: with lower tiers and manual marks.
    tree: MarkingStore | None
    #: The same store, if it is a pool of several cache groups.
    groups: _core.GroupStore | None
    #: The same store, if its shared prefixes are separate entries.
    prefixes: SharesPrefixes | None
    edges: Edges
    #: The write policy of each edge, from the GPU down, if it keeps a tree.
    writes: tuple[EdgeWrites, ...]
    #: The pool that this machine shares with the others.
    pool: PoolNode | None
    #: Occasions on which blocks are prefetched; None: no prefetching.
    occasions: tuple[str, ...] | None
    #: A plug-in for prefetching.
    prefetch: PrefetchPolicy | None
    #: True if a tier's policy gives blocks a time to live.
    expires: bool
    #: As of ``forms_in_core``.
    forms: FormsInCore = ()

    @property
    def reads_others(self) -> bool:
        """True if it reads other machines, or the pool."""
        elsewhere = self.movement.lookup == "cluster" or self.pool is not None
        return elsewhere and self.tree is not None and len(self.tiers) > 1

    @property
    def kept_free_blocks(self) -> int:
        """Blocks of the GPU that no request can use: SGLang keeps a page."""
        return int(store_kind(self.cache).keeps_page_free and self.cache.block_size_tokens > 1)

    def most_blocks(self, tokens: int, steps_in_flight: int = 1) -> int:
        """Return the most GPU blocks that a request of ``tokens`` tokens can hold at one time."""
        if self.groups is not None:
            return self.groups.most_blocks(tokens, steps_in_flight)
        return -(-tokens // self.cache.block_size_tokens)

    def expire(self) -> None:
        """Discard the blocks whose time to live has passed."""
        if self.expires and self.tree is not None:
            self.tree.expire(self.engine.now_ns)


class MachineBuilder:
    """Builds the machines of one cluster, with a shared clock, channels, and cache and movement settings.

    ``cache``: with blocks in the store's unit, single tokens under simplified accounting.
    """

    def __init__(
        self,
        stores: StoreMaker,
        channels: Channels,
        engine: Engine,
        cache: CacheSettings,
        movement: MovementSettings,
    ) -> None:
        self._stores = stores
        self._channels = channels
        self._engine = engine
        self._cache = cache
        self._movement = movement
        self._built = 0
        self._pool: PoolNode | None = None

    def add_pool(self, number: int, pool: PoolSettings) -> PoolNode:
        """Return an empty pool that all machines built from now on share; ``number``: its number."""
        tiers = (
            TierSettings(TIERS[COMPUTE], 0),
            TierSettings(TIERS[STAGING], pool.capacity_blocks, pool.policy),
        )
        store = self._stores.make(tiers, [False, False])
        assert store.tree is not None, "a pool is for trees"
        self._channels.between(0, number)
        self._pool = PoolNode(number, store.tree, self._cache)
        return self._pool

    def build(self, tiers: MachineTiers) -> Machine:
        """Return the next machine, empty.

        UsageError for a policy that is unknown or not supported here; KeyError for an edge without a channel.
        """
        number, movement = self._built, self._movement
        self._built += 1
        cache = tiers.cache or self._cache
        names = tuple(tier.name for tier in tiers.tiers)
        writes = edge_writes(names[:-1], movement)
        store = self._stores.make(tiers.tiers, [*(edge.writes_back for edge in writes), False])
        edges = self._edges(tiers)
        occasions, prefetch = self._prefetches(names, store.tree, cache)
        return Machine(
            number=number,
            tiers=names,
            cache=cache,
            movement=movement,
            engine=self._engine,
            store=store.gpu,
            tree=store.tree,
            groups=store.groups,
            prefixes=store.prefixes,
            edges=edges,
            writes=writes if store.tree is not None else (),
            pool=self._pool,
            occasions=occasions,
            prefetch=prefetch,
            expires=any(tier.policy.partition(":")[0] == "ttl" for tier in tiers.tiers),
            forms=forms_in_core(tiers.wire, [tier.form for tier in tiers.tiers[1:]], cache.block_bytes),
        )

    def _prefetches(
        self, names: Sequence[str], tree: MarkingStore | None, cache: CacheSettings
    ) -> tuple[tuple[str, ...] | None, PrefetchPolicy | None]:
        """Return the occasions on which a machine prefetches blocks, and the plug-in for it."""
        policy = self._movement.prefetch
        if tree is not None and len(names) > 1:
            if policy in PREFETCHES:
                return (policy,), None
            if policy != "none":
                plugin: PrefetchPolicy = PREFETCH.make(policy)
                return plugin.occasions, plugin
        elif cache.lower_prefetch is not None and len(names) > 2:
            return ("queued",), None
        return None, None

    def _edges(self, tiers: MachineTiers) -> Edges:
        """Return the channels of one machine's edges."""
        named, depth = tiers.edge_channels, len(tiers.tiers) - 1
        needed = WRITE_EDGES[:depth] + LOAD_EDGES[:depth]
        # Edges without tiers: hand-overs between gpus may cross the memory of both machines.
        channels = {
            edge: self._channels[named[edge]]
            for edge in (*WRITE_EDGES, *LOAD_EDGES)
            if edge in needed or edge in named
        }
        rails = {
            edge: {name: self._channels[name] for name in names} for edge, names in tiers.edge_rails.items()
        }
        choice = self._movement.channel_choice
        plugin = CHANNEL_CHOICE.make(choice) if rails and choice not in CHOICES else None
        return Edges(channels, rails, choice == "assigned", plugin)


def build_machines(builder: MachineBuilder, machines: Sequence[MachineTiers]) -> list[Machine]:
    """Return one empty machine for each description, numbered in order."""
    return [builder.build(tiers) for tiers in machines]

"""A machine's cache, built whole: the simulation serves from it, operations by hand drive it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kvcache_sim.cache.admission import ADMISSION
from kvcache_sim.cache.admission.policy import AdmissionPolicy
from kvcache_sim.cache.group_store import GroupStore, LoadingGroupStore
from kvcache_sim.cache.loader import Loader
from kvcache_sim.cache.moves import Mover, TransferSettings
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.prefetch.policy import Prefetches
from kvcache_sim.cache.prefetch.prefetcher import Prefetcher
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, PoolSettings, TierSettings
from kvcache_sim.cache.store import GpuStore, KeepsSessions, OffersComputed, PrefetchingStore, SharesPrefixes
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.cache.views import Views, make_views
from kvcache_sim.cache.write import WRITE
from kvcache_sim.cache.write.edges import WriteEdges
from kvcache_sim.channels.choice import CHANNEL_CHOICE
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.channels.edges import Edges
from kvcache_sim.engine import Engine
from kvcache_sim.tiers import COMPUTE, LOAD_EDGES, REMOTE_READ, STAGING, TIERS, WRITE_EDGES
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class MachineTiers:
    """The tiers of one machine, fast to slow, and the channel of each of its edges by name.

    ``edge_channels`` names the channel of each edge, ``"gpu->cpu"``, ``"cpu->gpu"`` and so on; the same name
    on two edges (or machines) means that they contend. ``edge_rails``: all channels of those edges that have
    several, in the scenario's order.
    """

    tiers: tuple[TierSettings, ...]
    edge_channels: dict[str, str] = field(default_factory=dict)
    edge_rails: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: How blocks are kept, where that is not as on the cluster's other machines.
    cache: CacheSettings | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine's cache: its store with the eviction policy of each tier, and all that moves blocks."""

    number: int
    #: Names of its tiers, fast to slow.
    tiers: tuple[str, ...]
    cache: CacheSettings
    movement: MovementSettings
    store: GpuStore
    #: The same store where blocks may lie on lower tiers and be marked by hand: a tree.
    tree: MarkingStore | None
    #: The same store where it is a pool of several cache groups.
    groups: GroupStore | None
    #: The same store where that pool has a tier below.
    loading_groups: LoadingGroupStore | None
    #: The same store where it keeps what sessions have, in Python: a count of tokens.
    sessions: KeepsSessions | None
    #: The same store where its shared prefixes are entries of their own.
    prefixes: SharesPrefixes | None
    views: Views
    #: Sends what the store decides over the channels of the edges.
    mover: Mover
    #: Write policies of the edges, where there is one.
    writes: WriteEdges | None
    #: The pool that this machine shares with the others.
    pool: PoolNode | None
    #: Reads from other machines, where the look-up covers the cluster, and from the pool.
    remote: RemoteReads | None
    #: Loads to the GPU what a tree has further down.
    loader: Loader | None
    prefetcher: Prefetches | None
    #: The same store where it copies down what steps compute by an engine's rules.
    offers: OffersComputed | None
    #: Whether a tier's policy gives blocks a time to live.
    expires: bool
    #: Says what of a finished request is kept, where that is not everything.
    admission: AdmissionPolicy | None

    @property
    def kept_free_blocks(self) -> int:
        """Blocks of the GPU that no request gets: SGLang keeps a page."""
        return int(store_kind(self.cache).keeps_page_free and self.cache.block_size_tokens > 1)

    def most_blocks(self, tokens: int, steps_in_flight: int = 1) -> int:
        """Return how many blocks of the GPU a request of so many tokens can hold at one time."""
        if self.groups is not None:
            return self.groups.most_blocks(tokens, steps_in_flight)
        return -(-tokens // self.cache.block_size_tokens)

    def expire(self) -> None:
        """Let go of the blocks that have outlived their time to live by now."""
        if self.expires and self.tree is not None:
            self.tree.expire(self.mover.engine.now_ns)


class MachineBuilder:
    """Builds the machines of one cluster, which share a clock, channels, and how blocks are kept and moved.

    ``cache``: blocks as the store counts them, single tokens under simplified accounting.
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
        #: All machines' movers by number, those still to be built included once they are.
        self._movers: dict[int, Mover] = {}
        #: The movers whose lower tiers others read: the pool's, and the machines' where look-ups cover them.
        self._read: dict[int, Mover] = {}
        self._pool: PoolNode | None = None

    def add_pool(self, number: int, pool: PoolSettings) -> PoolNode:
        """Return the pool that all machines built from now on share, empty; ``number``: how many they are."""
        tiers = (
            TierSettings(TIERS[COMPUTE], 0),
            TierSettings(TIERS[STAGING], pool.capacity_blocks, pool.policy),
        )
        store = self._stores.make(tiers, [False, False], make_views(self._stores.cache))
        assert store.tree is not None, "a pool is for trees"
        settings = TransferSettings.of(self._cache, self._movement)
        edges = Edges(number, {REMOTE_READ: self._channels.between(0, number)}, {}, None)
        mover = self._read[number] = Mover(number, store, self._engine, edges, None, settings)
        self._pool = PoolNode(mover, store.tree, self._movers, self._channels)
        return self._pool

    def build(self, tiers: MachineTiers) -> Machine:
        """Return the next machine, empty.

        UsageError for a policy that is unknown or cannot run here; KeyError for an edge whose channel is not
        given.
        """
        number, movement = len(self._movers), self._movement
        cache = tiers.cache or self._cache
        names = tuple(tier.name for tier in tiers.tiers)
        policies = tuple(
            WRITE.make(movement.write.get(name, "back"), level, movement)
            for level, name in enumerate(names[:-1])
        )
        views = make_views(self._stores.cache)
        store = self._stores.make(tiers.tiers, [*(policy.writes_back for policy in policies), False], views)
        tree = store.tree
        writes = WriteEdges(tree, policies) if tree is not None and policies else None
        settings = TransferSettings.of(cache, movement)
        mover = Mover(number, store, self._engine, self._edges(number, tiers), writes, settings)
        self._movers[number] = mover
        pool, looks_everywhere = self._pool, movement.lookup == "cluster"
        if looks_everywhere:
            self._read[number] = mover
        remote = None
        prefetcher: Prefetches | None = None
        if tree is not None and len(names) > 1:
            if looks_everywhere or pool is not None:
                staged = movement.remote_disk == "staged"
                remote = RemoteReads(mover, tree, self._read, self._channels, staged)
            if pool is not None and remote is not None:
                pool.take_from(mover)
                remote.when_read[pool.mover.machine] = pool.was_read
            if movement.prefetch != "none":
                prefetcher = Prefetcher(mover, tree, movement, remote)
        elif store.prefetching is not None and cache.lower_prefetch is not None:
            prefetcher = _from_storage(mover, store.prefetching, cache)
        return Machine(
            number=number,
            tiers=names,
            cache=cache,
            movement=movement,
            store=store.gpu,
            tree=tree,
            groups=store.groups,
            loading_groups=store.loading_groups,
            sessions=store.sessions,
            prefixes=store.prefixes,
            views=views,
            mover=mover,
            writes=writes,
            pool=pool,
            remote=remote,
            loader=None if store.loading is None else Loader(mover, store, remote, movement.exclusive),
            offers=store.offers,
            prefetcher=prefetcher,
            admission=None if cache.admission == "all" else ADMISSION.make(cache.admission),
            expires=any(tier.policy.partition(":")[0] == "ttl" for tier in tiers.tiers),
        )

    def _edges(self, number: int, tiers: MachineTiers) -> Edges:
        """Return the channels of one machine's edges."""
        named, depth = tiers.edge_channels, len(tiers.tiers) - 1
        needed = WRITE_EDGES[:depth] + LOAD_EDGES[:depth]
        # Beyond the edges between its tiers: hand-overs between gpus may cross the memory of both machines.
        channels = {
            edge: self._channels[named[edge]]
            for edge in (*WRITE_EDGES, *LOAD_EDGES)
            if edge in needed or edge in named
        }
        rails = {
            edge: {name: self._channels[name] for name in names} for edge, names in tiers.edge_rails.items()
        }
        choice = CHANNEL_CHOICE.make(self._movement.channel_choice) if rails else None
        return Edges(number, channels, rails, choice)


def _from_storage(mover: Mover, store: PrefetchingStore, cache: CacheSettings) -> Prefetches:
    from kvcache_sim.cache.prefetch.from_storage import StoragePrefetcher

    assert cache.lower_prefetch is not None
    return StoragePrefetcher(mover, store, cache.lower_prefetch, cache.block_size_tokens)


def build_machines(builder: MachineBuilder, machines: Sequence[MachineTiers]) -> list[Machine]:
    """Return one empty machine for each description, numbered in order."""
    return [builder.build(tiers) for tiers in machines]

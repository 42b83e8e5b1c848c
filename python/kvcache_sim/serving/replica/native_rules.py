"""What the core is told of a replica, and what it knows how to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvcache_sim import _core
from kvcache_sim.cache.fetch import FETCHES
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.prefetch.prefetcher import Prefetcher
from kvcache_sim.cache.prefix_view import PrefixViewSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.write import WRITES
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.serving.queue import ORDERS, served_as
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.plugin_rules import (
    ChosenLane,
    PluginRules,
    channel_call,
    core_name,
    edge_writes,
    plugin_rules,
)
from kvcache_sim.serving.settings import (
    HandoverSettings,
    ReplicaSettings,
    Role,
)
from kvcache_sim.tiers import LOAD_EDGES, PLACES, WRITE_EDGES
from kvcache_sim.values import dataclass

if TYPE_CHECKING:
    from kvcache_sim.serving.sglang.settings import SglangRules
    from kvcache_sim.serving.vllm.settings import VllmRules

#: Stores that the core serves and routes from.
STORES_IN_CORE = (
    _core.Store,
    _core.PoolStore,
    _core.TieredPoolStore,
    _core.RadixStore,
    _core.GroupStore,
    _core.HiCacheStore,
    _core.TokenStore,
)
#: Channels side by side, of which a transfer takes the emptiest or the one that a plug-in chooses.
Lane = list[_core.Channel] | ChosenLane
#: Places that the core has room for.
_MOST_PLACES = 8


@dataclass(frozen=True, slots=True)
class PrefetchRules:
    """What the core is told of a machine that brings blocks up ahead of their requests."""

    policy: str
    #: Whether blocks come up when their request has come.
    queued: bool
    #: The fetch policy, which says whether a request stays in the queue for its blocks.
    fetch: str
    #: Most blocks that are on their way at once.
    room_blocks: int
    #: How long a request stays in the queue for its blocks under the fetch policy ``timeout``.
    timeout_ns: int
    #: The same for each 1,024 tokens asked of an engine's storage; None: no storage brings blocks up.
    storage_per_ki_token_ns: int | None = None

    @classmethod
    def of(cls, machine: Machine) -> PrefetchRules | None:
        """Return those of a machine, None where nothing is prefetched."""
        movement, prefetcher = machine.movement, machine.prefetcher
        if isinstance(prefetcher, Prefetcher):
            name = core_name(movement.prefetch, movement.prefetch in PREFETCHES)
            queued = "queued" in prefetcher.policy.occasions
            return cls(name, queued, movement.fetch, prefetcher.room, movement.fetch_timeout_ns)
        storage = machine.cache.lower_prefetch
        if prefetcher is None or storage is None:
            return None
        return cls("queued", True, storage.stop, 0, storage.timeout_ns, storage.timeout_per_ki_token_ns)


@dataclass(frozen=True, slots=True)
class TierRules:
    """What the core is told of a machine's tiers, fast to slow, and of the edges between them."""

    names: tuple[str, ...]
    #: By edge: the channels over which KV is written, and those over which it is read; each transfer takes
    #: the emptiest.
    channels: tuple[tuple[Lane, Lane], ...]
    block_bytes: int
    layer_pipelining: bool
    read_buffer_layers: int | None
    #: By edge its write policy, ``back`` in the place of a plug-in; after how many uses ``selective`` writes.
    writes: tuple[str, ...]
    write_uses: int
    fetch: str
    #: By edge: whether a block that has come up leaves the lower tier.
    exclusive: tuple[bool, ...]
    #: How blocks come up ahead of their requests; None: they do not.
    prefetch: PrefetchRules | None
    #: Bytes of a page, and the layers of each cache group, where blocks are of groups.
    pages: tuple[int, list[list[int]]] | None


def tier_rules(machine: Machine) -> TierRules:
    """Return what the core is told of one machine's tiers."""
    movement, names = machine.movement, machine.tiers
    uppers = names[:-1]
    return TierRules(
        names=names,
        channels=tuple(edge_channels(machine)),
        block_bytes=machine.mover.block_bytes,
        layer_pipelining=movement.layer_pipelining,
        read_buffer_layers=movement.read_buffer_layers,
        writes=tuple(name if name in WRITES else "back" for name in edge_writes(machine)),
        write_uses=movement.write_selective_uses,
        fetch=core_name(movement.fetch, movement.fetch in FETCHES),
        exclusive=tuple(name in movement.exclusive for name in uppers),
        prefetch=PrefetchRules.of(machine),
        pages=None if machine.loading_groups is None else machine.mover.layer_pages,
    )


def edge_channels(machine: Machine) -> list[tuple[Lane, Lane]]:
    """Return the channels of each edge, down and up, as far as they are the core's."""
    edges, choice = len(machine.tiers) - 1, machine.movement.channel_choice
    pairs = [
        (lane_in_core(machine.mover, choice, down), lane_in_core(machine.mover, choice, up))
        for down, up in zip(WRITE_EDGES[:edges], LOAD_EDGES[:edges], strict=True)
    ]
    return [(down, up) for down, up in pairs if down and up]


def lane_in_core(mover: Mover, choice: str, edge: str) -> Lane:
    """Return the channels of an edge that the core or a plug-in chooses among, if they are the core's."""
    carrying = mover.carrying(edge)
    channels = in_core(carrying[:1] if choice == "assigned" else carrying)
    plugin = channel_call(mover, choice, edge) if channels else None
    return channels if plugin is None else ChosenLane(channels, plugin)


def in_core(channels: Sequence[AnyChannel]) -> list[_core.Channel]:
    """Return those of some channels that are the core's."""
    return [channel for channel in channels if isinstance(channel, _core.Channel)]


@dataclass(frozen=True, slots=True)
class HandoverRules:
    """What the core is told of a machine that computes prompts for others, or takes them in."""

    prefills: bool
    layer_by_layer: bool
    first_token_at_prefill: bool

    @classmethod
    def of(cls, role: Role, handover: HandoverSettings) -> HandoverRules:
        """Return those of a machine with a role, in a cluster where some machines prefill for others."""
        return cls(
            prefills=role == "prefill",
            layer_by_layer=handover.transfer == "layer-by-layer",
            first_token_at_prefill=handover.first_token == "prefill",
        )


@dataclass(frozen=True, slots=True)
class ReadsRules:
    """What the core is told of a machine that reads others."""

    #: Whether what lies below the tier that the network reads comes up there first, as a copy.
    staged: bool
    #: Whether it reads all others that serve.
    machines: bool
    #: The number of the shared pool that it reads and writes, None without one.
    pool: int | None

    @classmethod
    def of(cls, machine: Machine) -> ReadsRules | None:
        """Return those of a machine, None where it reads no others."""
        if machine.remote is None:
            return None
        movement, pool = machine.movement, machine.pool
        return cls(
            staged=movement.remote_disk == "staged",
            machines=movement.lookup == "cluster",
            pool=None if pool is None else pool.mover.machine,
        )


@dataclass(frozen=True, slots=True)
class PoolRules:
    """What the core is told of a pool that machines share."""

    machine: int
    #: How many places KV may come from.
    places: int
    block_bytes: int
    layers: int
    layer_pipelining: bool

    @classmethod
    def of(cls, pool: PoolNode) -> PoolRules:
        """Return those of a pool."""
        mover = pool.mover
        return cls(mover.machine, len(PLACES), mover.block_bytes, mover.layers, mover.pipelining)


@dataclass(frozen=True, slots=True)
class ServingRules:
    """What the core is told of a replica, beside its batch."""

    machine: int
    max_num_seqs: int
    #: Whether a request waits for a block that another one is computing.
    waits_for_duplicates: bool
    queue_order: str
    async_scheduling: str
    skips_full_prefill: bool
    discard_on_finish: bool
    admits_prompts_only: bool
    #: Blocks at the end of every hit that are computed again.
    lost_blocks: int
    #: Whether blocks have a time to live.
    expires: bool
    #: How many of the waiting requests have their blocks protected from eviction.
    look_ahead: int
    max_sessions: int | None
    session_ttl_ns: int | None
    #: When prefixes may be shared between requests; None: at once.
    prefix_view: PrefixViewSettings | None
    #: Milestones in [start, end) are recorded; None: none are.
    record_window_ns: tuple[int, int] | None
    #: Names of the columns of a request's row, in order.
    request_columns: tuple[str, ...]
    #: Names of the places that KV may come from, fast to slow: rows of transfers number edges by them.
    places: tuple[str, ...]
    #: Which other machines it reads, and how; None: none.
    reads: ReadsRules | None
    tiers: TierRules
    #: What a piece of a copy to or from the GPU takes of the CPU, and such a copy of the GPU.
    copy_submit_ns: int
    copy_gpu_share: float
    #: What an engine's own scheduler is told; None: another's, or kvsim's own composes the steps.
    vllm: VllmRules | None = None
    sglang: SglangRules | None = None
    #: How prompts go to other machines, or come from there; None: they stay where they are.
    handover: HandoverRules | None = None
    #: Policies that are not built in.
    plugins: PluginRules | None = None


def serving_rules(
    machine: Machine, settings: ReplicaSettings, recorder: Recorder, handover: HandoverRules | None
) -> ServingRules:
    """Return what the core is told of one machine's replica."""
    cache = machine.cache
    return ServingRules(
        machine=machine.number,
        max_num_seqs=settings.max_num_seqs,
        waits_for_duplicates=settings.duplicate_prefill == "wait",
        queue_order=core_name(served_as(settings.queue_order), settings.queue_order in ("fcfs", *ORDERS)),
        async_scheduling=settings.async_scheduling,
        skips_full_prefill=cache.full_hit == "skip-prefill",
        discard_on_finish=cache.discard_on_finish,
        admits_prompts_only=cache.admission == "prompt",
        lost_blocks=settings.lost_blocks,
        expires=machine.expires,
        look_ahead=0 if machine.tree is None else cache.scheduler_aware_window,
        max_sessions=cache.session_view.max_sessions,
        session_ttl_ns=cache.session_view.ttl_ns,
        prefix_view=_prefix_view(cache),
        record_window_ns=recorder.window_ns,
        request_columns=recorder.row_columns,
        places=PLACES,
        reads=ReadsRules.of(machine),
        tiers=tier_rules(machine),
        copy_submit_ns=settings.copy_submit_ns,
        copy_gpu_share=settings.copy_gpu_share,
        vllm=_vllm_rules(machine, settings),
        sglang=_sglang_rules(settings),
        handover=handover,
        plugins=plugin_rules(machine, settings),
    )


def _vllm_rules(machine: Machine, settings: ReplicaSettings) -> VllmRules | None:
    if settings.scheduler != "vllm":
        return None
    from kvcache_sim.serving.vllm.settings import vllm_rules

    return vllm_rules(settings, machine.store.room(0).capacity_blocks)


def _sglang_rules(settings: ReplicaSettings) -> SglangRules | None:
    if settings.scheduler != "sglang":
        return None
    from kvcache_sim.serving.sglang.settings import sglang_rules

    return sglang_rules(settings)


def _prefix_view(cache: CacheSettings) -> PrefixViewSettings | None:
    """Return when prefixes may be shared; None: at once, or the store decides it itself."""
    at_once = cache.prefix_view == PrefixViewSettings() or cache.accounting == "simplified"
    return None if at_once else cache.prefix_view


def core_serves(machine: Machine) -> bool:
    """Return whether the core serves the replica of a machine: its store and its channels are the core's."""
    return isinstance(machine.store, STORES_IN_CORE) and (len(machine.tiers) == 1 or _core_moves(machine))


def _core_moves(machine: Machine) -> bool:
    """Return whether the core knows how a machine's blocks move between its tiers."""
    return len(PLACES) <= _MOST_PLACES and all(
        channel.by_layer or isinstance(channel, _core.Channel) for channel in machine.mover.channels.values()
    )

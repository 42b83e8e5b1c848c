"""A machine's tiers, edges and reads in the core's format, from the settings of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvcache_sim import _core
from kvcache_sim.base.tiers import LOAD_EDGES, STAGING, WRITE_EDGES
from kvcache_sim.base.values import Value
from kvcache_sim.cache.fetch import FETCHES
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.settings import FormsInCore
from kvcache_sim.cache.write import WRITES
from kvcache_sim.cache.write.edge import EdgeWrites
from kvcache_sim.channels.choice.policy import Sending
from kvcache_sim.channels.cluster import Edges

#: The core's name of every plug-in.
PLUGIN = "plug-in"


def core_name(name: str, built_in: bool) -> str:
    """Return the core's name of a policy."""
    return name if built_in else PLUGIN


class ChannelCall(Value):
    """The choice of a plug-in among the channels of one machine's edge."""

    call: Callable[..., Any]
    view: type
    machine: int
    edge: str
    channels: Mapping[str, _core.Channel]

    @property
    def names(self) -> list[str]:
        """The channels' names, in the scenario's order."""
        return list(self.channels)


class ChosenLane(Value):
    """Parallel channels among which a plug-in chooses, in the scenario's order."""

    channels: list[_core.Channel]
    choice: ChannelCall


#: Parallel channels: a transfer takes the emptiest, or the channel that a plug-in chooses.
Lane = list[_core.Channel] | ChosenLane


def lane(machine: int, edges: Edges, edge: str) -> Lane:
    """Return the channels of a machine's edge, and the plug-in that chooses among them."""
    channels, rails = edges.carrying(edge), edges.rails.get(edge)
    if rails is None or edges.choice is None:
        return channels
    return ChosenLane(channels, ChannelCall(edges.choice.choose, Sending, machine, edge, rails))


class WriteCall(Value):
    """The checked methods of a plug-in that is the write policy of one edge."""

    at_commit: bool
    delays_step: bool
    committed: Callable[..., Any]
    used: Callable[..., Any]
    arrived: Callable[..., Any]


def write_call(edge: EdgeWrites) -> WriteCall | None:
    """Return the plug-in that is the write policy of an edge; None for a policy of the core."""
    plugin = edge.plugin
    if plugin is None:
        return None
    return WriteCall(plugin.at_commit, plugin.delays_step, plugin.committed, plugin.used, plugin.arrived)


class PrefetchRules(Value):
    """The rules of a machine that prefetches blocks."""

    #: Its name, and True if blocks are prefetched when their request has arrived.
    policy: tuple[str, bool]
    #: The fetch policy, which may hold a request in the queue for its blocks, and the longest wait under
    #: ``timeout``.
    hold_back: tuple[str, int]
    #: Most blocks in flight.
    prefetch_blocks: int
    #: Additional wait per 1,024 tokens of an engine's storage; None: no prefetch from storage.
    storage_per_ki_token_ns: int | None = None

    @classmethod
    def of(cls, machine: Machine) -> PrefetchRules | None:
        """Return the rules of a machine, None if it does not prefetch."""
        movement, storage = machine.movement, machine.cache.lower_prefetch
        if machine.occasions is None:
            return None
        if machine.tree is not None:
            name = core_name(movement.prefetch, movement.prefetch in PREFETCHES)
            prefetch_blocks = int(machine.tree.occupancy(STAGING).capacity_blocks * movement.prefetch_share)
            hold_back = (movement.fetch, movement.fetch_timeout_ns)
            return cls((name, "queued" in machine.occasions), hold_back, prefetch_blocks)
        assert storage is not None, "blocks are prefetched from an engine's storage"
        hold_back = (storage.stop, storage.timeout_ns)
        return cls(("queued", True), hold_back, 0, storage.timeout_per_ki_token_ns)


class TierRules(Value):
    """The rules of a machine's tiers, fast to slow, and of the edges between them."""

    names: tuple[str, ...]
    #: By edge: the channels over which KV is written, and those over which it is read.
    channels: tuple[tuple[Lane, Lane], ...]
    block_bytes: int
    layer_pipelining: bool
    read_buffer_layers: int | None
    #: By edge its write policy (``back`` for a plug-in), and the uses after which ``selective`` writes.
    writes: tuple[str, ...]
    write_uses: int
    fetch: str
    #: By edge: True if a promoted block leaves the lower tier.
    exclusive: tuple[bool, ...]
    #: Rules of prefetching; None: no prefetching.
    prefetch: PrefetchRules | None
    #: Bytes of a page, and the layers of each cache group; None without groups.
    pages: tuple[int, list[list[int]]] | None
    #: By tier the bytes of a block there, and the ns to encode and to decode it; empty: all are the same.
    forms: FormsInCore

    @classmethod
    def of(cls, machine: Machine) -> TierRules:
        """Return the rules of a machine."""
        movement, cache, names = machine.movement, machine.cache, machine.tiers
        uppers = names[:-1]
        named = [movement.write.get(tier, "back") for tier in uppers]
        lanes = [
            (lane(machine.number, machine.edges, down), lane(machine.number, machine.edges, up))
            for down, up in zip(WRITE_EDGES[: len(uppers)], LOAD_EDGES[: len(uppers)], strict=True)
        ]
        return cls(
            names=names,
            channels=tuple(lanes),
            block_bytes=cache.block_bytes,
            layer_pipelining=movement.layer_pipelining,
            read_buffer_layers=movement.read_buffer_layers,
            writes=tuple(name if name in WRITES else "back" for name in named),
            write_uses=movement.write_selective_uses,
            fetch=core_name(movement.fetch, movement.fetch in FETCHES),
            exclusive=tuple(name in movement.exclusive for name in uppers),
            prefetch=PrefetchRules.of(machine),
            pages=_pages(machine),
            forms=machine.forms,
        )


def _pages(machine: Machine) -> tuple[int, list[list[int]]] | None:
    groups = machine.cache.groups
    if groups is None or len(machine.tiers) == 1:
        return None
    layers = [list(group.layers) for group in groups.layout.groups]
    return groups.layout.page_bytes * groups.gpus, layers


class ReadsRules(Value):
    """The rules of a machine that reads other machines."""

    #: True if blocks below the tier that the network reads are copied up to it first.
    staged: bool
    #: True if it reads all other machines that serve.
    machines: bool
    #: The number of the shared pool that it reads and writes, None without one.
    pool: int | None

    @classmethod
    def of(cls, machine: Machine) -> ReadsRules | None:
        """Return the rules of a machine, None if it reads no others."""
        if not machine.reads_others:
            return None
        movement, pool = machine.movement, machine.pool
        return cls(
            staged=movement.remote_disk == "staged",
            machines=movement.lookup == "cluster",
            pool=None if pool is None else pool.number,
        )

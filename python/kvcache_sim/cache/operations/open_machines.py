"""Caches of some machines over one trace, to be operated by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kvcache_sim.backends import checked_backend, reference
from kvcache_sim.cache.block_names import BlockNames
from kvcache_sim.cache.channels import Channels
from kvcache_sim.cache.key_arrays import key_arrays
from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.operations.machine_cache import MachineCache
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.settings import (
    CacheSettings,
    ChannelSettings,
    MovementSettings,
    NetworkSettings,
    TierSettings,
)
from kvcache_sim.cache.store import BlockStore
from kvcache_sim.cache.write import WRITE
from kvcache_sim.engine import Engine
from kvcache_sim.tiers import TIERS
from kvcache_sim.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class MachineTiers:
    """The tiers of one machine, fast to slow, and the channel of each of its edges by name."""

    tiers: tuple[TierSettings, ...]
    edge_channels: dict[str, str] = field(default_factory=dict)


def open_machines(
    trace: Trace,
    machines: Sequence[MachineTiers],
    channels: tuple[Mapping[str, ChannelSettings], NetworkSettings],
    settings: tuple[CacheSettings, MovementSettings],
    backend: str = "native",
) -> list[MachineCache]:
    """Return one empty cache a machine; all share one clock, which stands at 0.

    ``channels``: those that edges name, and those between machines. ``backend``: ``native``, or ``python``
    for the twin. UsageError where the cache's block does not divide the trace's; KeyError for an edge whose
    channel is not given.
    """
    cache, movement = settings
    engine = Engine(len(machines))
    links = Channels(*channels, engine)
    arrays = key_arrays(trace, cache.block_size_tokens)
    names = BlockNames(trace, cache.block_size_tokens)
    movers = []
    opened = []
    for number, machine in enumerate(machines):
        tiers = [tier.name for tier in machine.tiers]
        writes = [WRITE.make(movement.write.get(name, "back"), level, movement) for level, name in
                  enumerate(tiers[:-1])]  # fmt: skip
        back = [policy.writes_back for policy in writes] + [False]
        capacities = [tier.capacity_blocks for tier in machine.tiers]
        store: BlockStore
        if checked_backend(backend) == "native":
            from kvcache_sim import _core

            store = _core.Store(_core.Keys(*arrays), capacities, back, touch=cache.touch)
        else:
            store = reference("store")(reference("keys")(*arrays), capacities, back, cache.touch)
        edges = {
            edge: links[machine.edge_channels[edge]]
            for upper, lower in pairwise(TIERS[: len(tiers)])
            for edge in (f"{upper}->{lower}", f"{lower}->{upper}")
        }
        mover = Mover(number, store, engine, edges, settings)
        mover.after_change = mover.issue
        movers.append(mover)
        opened.append(MachineCache(mover, tiers, names, (cache, movement), writes))
    for one in opened:
        one.others = opened
        if movement.lookup == "cluster" and len(one.tiers) > 1:
            one.bring_up.remote = RemoteReads(one.mover, movers, links, movement)
    return opened

"""Caches of some machines over one trace, to be operated manually."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.machine import MachineBuilder, MachineTiers, build_machines
from kvcache_sim.cache.operations.machine_cache import MachineCache
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.operations.native import NativeMachines, NativeMovement
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.channels.settings import ClusterChannels
from kvcache_sim.engine import Engine
from kvcache_sim.workload.block_names import BlockNames
from kvcache_sim.workload.trace import Trace


def open_machines(
    trace: Trace,
    machines: Sequence[MachineTiers],
    channels: ClusterChannels,
    cache: CacheSettings,
    movement: MovementSettings,
) -> list[MachineCache]:
    """Return one empty cache per machine, built as in a simulation; all share one clock, at 0 ns.

    Args:
        trace: The trace that names requests and blocks.
        machines: The tiers of each machine.
        channels: The channels of their edges and between machines.
        cache: Cache settings: semantics ``tree``, a block size that divides the trace's.
        movement: Write, fetch and lookup settings.

    Raises:
        UsageError: The cache's block does not divide the trace's; a policy is unknown or not supported on a
            tier; the cache is no tree.
        KeyError: An edge has no channel.
    """
    engine = Engine(len(machines))
    by_event = movement.read_buffer_layers is not None
    links = Channels(channels.named, channels.network, by_event=by_event)
    builder = MachineBuilder(StoreMaker(cache, trace, movement), links, engine, cache, movement)
    built = build_machines(builder, machines)
    for machine in built:
        marking(machine.tree)
    names = BlockNames(trace, cache.block_size_tokens)
    core = NativeMachines(built, links)
    return [MachineCache(machine, built, names, NativeMovement(core, machine)) for machine in built]

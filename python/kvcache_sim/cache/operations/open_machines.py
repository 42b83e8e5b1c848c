"""Caches of some machines over one trace, to be operated by hand."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.machine import Machine, MachineBuilder, MachineTiers, build_machines
from kvcache_sim.cache.operations.machine_cache import MachineCache
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.operations.movement import Movement, PythonMovement
from kvcache_sim.cache.operations.native import NativeMachines, NativeMovement, core_operates
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
    backend: str = "native",
) -> list[MachineCache]:
    """Return one empty cache a machine, built as the simulation builds it; all share one clock, at 0.

    ``backend``: ``native``, or ``python`` for the reference. UsageError where the cache's block does not
    divide the trace's, for a policy that is unknown or cannot run on a tier, and for a cache that is no tree;
    KeyError for an edge whose channel is not given.
    """
    engine = Engine(len(machines))
    stores = StoreMaker(cache, trace, lambda: engine.now_ns, backend)
    by_event = movement.read_buffer_layers is not None
    native = backend == "native"
    links = Channels(channels.named, channels.network, engine, by_event=by_event, native=native)
    built = build_machines(MachineBuilder(stores, links, engine, cache, movement), machines)
    names = BlockNames(trace, cache.block_size_tokens)
    core = NativeMachines(built, links) if native and core_operates(built) else None
    return [MachineCache(machine, built, names, _movement(machine, core)) for machine in built]


def _movement(machine: Machine, core: NativeMachines | None) -> Movement:
    if core is not None:
        return NativeMovement(core, machine)
    marking(machine.mover)
    assert machine.loader is not None, "a tree can load"
    return PythonMovement(machine.mover, machine.loader, machine.remote)

"""Small clusters under pressure: a table of step times, one to three tiers, machines that read each other."""

from dataclasses import replace
from typing import Any

import numpy as np
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings

from support.product.models import ResidualGrid, Residuals

BLOCK = 16
#: Channels of a pool that machines share.
READ, WRITE = "pool-read", "pool-write"

#: Capacities from the GPU down, and whether blocks are written through.
SHAPES = [
    ((160,), False),
    ((90, 200), False),
    ((90, 60, 400), False),
    ((90, 200), True),
    ((100, 40, 60), True),
]


def table(max_tokens: int = 4096, max_seqs: int = 64) -> StepTimeTable:
    base = 1_000_000 + np.arange(max_tokens + 1, dtype=np.int64) * 20_000
    base[0] = 0
    decode = 5_000_000 + np.arange(max_seqs + 1, dtype=np.int64) * 1_000
    decode[0] = 0
    longest = np.minimum(np.arange(max_seqs + 1, dtype=np.int64), 24) * 12_000_000
    linear = (400_000, 40_000_000, 70_000_000, 6_000_000, 1_000, 2_000, 3_000)
    # Neither base need rise: every third count costs less with a past.
    past_base = base - (np.arange(max_tokens + 1) % 3 == 0) * base // 4
    # What KV and a past cost besides is not linear, and may fall.
    kv_residuals = ResidualGrid(
        (1, 8, 64), (1, 200, 4000), ((0, 9, 7), (5, 900_000, 100_000), (-9, 40_000, 3_000_000))
    )
    past_residuals = ResidualGrid(
        (1, 64, 4096), (1, 1000, 5000), ((0, 99, 9), (70_000, 2_000_000, -40_000), (1, 2, 3))
    )
    apart = {
        "longest_fs": longest,
        "past_base_ns": past_base,
        "residuals": Residuals(kv_residuals, kv_residuals.times(0.5), past_residuals),
    }
    return StepTimeTable(base, decode, *linear, idle_fs=50_000, alongside_fs=700_000_000_000, **apart)


def cluster(
    tiers: tuple[int, ...], machines: int = 1, through: bool = False, pipelined: bool = True, **channel: Any
) -> ClusterSettings:
    names = ("gpu", "cpu", "disk")[: len(tiers)]
    rates = {"gpu->cpu": 4, "cpu->gpu": 5, "cpu->disk": 1, "disk->cpu": 2}
    channels, built = {}, []
    for m in range(machines):
        edges = {e: f"{e} {m}" for e in rates if set(e.split("->")) <= set(names)}
        for edge, name in edges.items():
            channels[name] = ChannelSettings(name, rates[edge] * 10**9, 20_000, 1_000, **channel)
        capacities = tuple(TierSettings(n, c) for n, c in zip(names, tiers, strict=True))
        built.append(MachineSettings(capacities, table(), ReplicaSettings(512, 8), edges))
    return ClusterSettings(
        tuple(built),
        channels,
        CacheSettings(block_size_tokens=BLOCK),
        MovementSettings(
            write={"gpu": "through" if through else "back", "cpu": "back"}, layer_pipelining=pipelined
        ),
    )


def varied(
    settings: ClusterSettings,
    replica: ReplicaSettings | None = None,
    kind: dict[str, Any] | None = None,
    wire: tuple[int, int] | None = None,
    **parts: Any,
) -> ClusterSettings:
    """Return a cluster with other engines, channels of another kind, a network, and further settings.

    Args:
        settings: The cluster.
        replica: The settings of every machine's engine.
        kind: Fields of every channel and of the network.
        wire: The network's bytes per second and its latency in nanoseconds.
        parts: Further fields of the cluster.
    """
    if replica is not None:
        parts["machines"] = tuple(replace(machine, replica=replica) for machine in settings.machines)
    if wire is not None:
        parts["network"] = NetworkSettings(default=replace(ChannelSettings("net", *wire), **(kind or {})))
    channels = {name: replace(one, **(kind or {})) for name, one in settings.channels.items()}
    return replace(settings, channels=channels, **parts)


def uneven(shapes: list[tuple[int, ...]], **channel: Any) -> ClusterSettings:
    """Return a cluster whose machines have tiers of different capacities, and some fewer tiers than
    others."""
    settings = cluster((90, 60, 400), len(shapes), **channel)
    machines = []
    for machine, shape in zip(settings.machines, shapes, strict=True):
        tiers = tuple(replace(t, capacity_blocks=c) for t, c in zip(machine.tiers, shape, strict=False))
        absent = {"gpu", "cpu", "disk"} - {tier.name for tier in tiers}
        edges = {e: name for e, name in machine.edge_channels.items() if not set(e.split("->")) & absent}
        machines.append(replace(machine, tiers=tiers, edge_channels=edges))
    return replace(settings, machines=tuple(machines))


def reading_each_other(tiers=(90, 60, 400), machines: int = 3, **movement: Any) -> ClusterSettings:
    settings = cluster(tiers, machines, pipelined=movement.pop("layer_pipelining", True))
    network = NetworkSettings(default=ChannelSettings("net", 3 * 10**9, 30_000))
    return replace(
        settings, movement=replace(settings.movement, lookup="cluster", **movement), network=network
    )


def under(settings: ClusterSettings, *policies: str) -> ClusterSettings:
    """Return the cluster with these policies on its tiers, from the gpu down; the last one also below."""
    machines = []
    for machine in settings.machines:
        names = [policies[min(k, len(policies) - 1)] for k in range(len(machine.tiers))]
        tiers = tuple(replace(tier, policy=name) for tier, name in zip(machine.tiers, names, strict=True))
        machines.append(replace(machine, tiers=tiers))
    return replace(settings, machines=tuple(machines))


def moving(
    tiers: tuple[int, ...] = (90, 60, 400), cache: dict[str, Any] | None = None, **movement: Any
) -> ClusterSettings:
    settings = cluster(tiers)
    write = {"gpu": "back", "cpu": "back"} | movement.pop("write", {})
    return replace(
        settings,
        movement=replace(settings.movement, write=write, **movement),
        cache=replace(settings.cache, **(cache or {})),
    )

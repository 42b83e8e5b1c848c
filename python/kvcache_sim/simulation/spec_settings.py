"""The settings of a cluster lowered to those of the specification, field by field, under the same names."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.spec import settings as spec
from kvcache_sim.tiers import STAGING, TIERS

_S = TypeVar("_S")


def spec_settings(cluster: ClusterSettings) -> spec.Settings:
    """Return a cluster's settings as ``spec/`` takes them; what it does not cover has no field there."""
    shared_block_tokens = cluster.cache.block_size_tokens
    if cluster.cache.accounting == "simplified":
        cluster = cluster.in_tokens()
    pool = cluster.pool
    return spec.Settings(
        machines=tuple(_machine(machine) for machine in cluster.machines),
        channels={name: _channel(one) for name, one in cluster.channels.items()},
        network=_network(cluster.network),
        cache=_cache(cluster, shared_block_tokens),
        movement=_copied(spec.MovementSettings, cluster.movement),
        router=_copied(spec.RouterSettings, cluster.router),
        handover=spec.HandoverSettings(
            path=cluster.handover.path,
            transfer=cluster.handover.transfer,
            first_token=cluster.handover.first_token,
            router=cluster.handover.router,
            network=_network(cluster.handover.network),
        ),
        pool=None if pool is None else spec.TierSettings(TIERS[STAGING], pool.capacity_blocks, pool.policy),
        seed=cluster.seed,
    )


def _copied(kind: type[_S], source: Any, **own: Any) -> _S:
    """Return settings of a kind, each field from the one of ``source`` with its name, or from ``own``."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: own[name] if name in own else getattr(source, name) for name in names})


def _machine(machine: MachineSettings) -> spec.MachineSettings:
    tiers = tuple(_copied(spec.TierSettings, tier) for tier in machine.tiers)
    replica = _copied(spec.ReplicaSettings, machine.replica)
    return _copied(spec.MachineSettings, machine, tiers=tiers, replica=replica)


def _channel(channel: ChannelSettings) -> spec.ChannelSettings:
    slowdowns = tuple(_copied(spec.SlowdownSettings, slow) for slow in channel.slowdowns)
    return _copied(spec.ChannelSettings, channel, slowdowns=slowdowns)


def _network(network: NetworkSettings) -> spec.NetworkSettings:
    return spec.NetworkSettings(network.pairs, _channel(network.default))


def _cache(cluster: ClusterSettings, shared_block_tokens: int) -> spec.CacheSettings:
    cache = cluster.cache
    return _copied(
        spec.CacheSettings,
        cache,
        max_sessions=cache.session_view.max_sessions,
        session_ttl_ns=cache.session_view.ttl_ns,
        min_prefix_tokens=cache.prefix_view.min_tokens,
        min_prefix_seen=cache.prefix_view.min_seen,
        max_prefix_tokens=cache.prefix_view.max_tokens,
        shared_block_tokens=shared_block_tokens,
    )

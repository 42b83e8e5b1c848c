"""A pool that the machines of a cluster share."""

from dataclasses import replace
from typing import Any

from kvcache_sim.cache.settings import PoolSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.serving.settings import ClusterSettings

from support.clusters import READ, WRITE


def sharing(
    settings: ClusterSettings, pool: PoolSettings, wire: tuple[int, int], kind: dict[str, Any] | None = None
) -> ClusterSettings:
    """Return the same machines with a pool behind two channels."""
    count = len(settings.machines)
    link = replace(ChannelSettings("net", *wire), **(kind or {}))
    nic = {name: replace(link, name=name) for name in (READ, WRITE)}
    pairs = {(count, m): READ for m in range(count)} | {(m, count): WRITE for m in range(count)}
    channels = {name: replace(one, **(kind or {})) for name, one in settings.channels.items()} | nic
    return replace(settings, channels=channels, network=NetworkSettings(pairs, default=link), pool=pool)

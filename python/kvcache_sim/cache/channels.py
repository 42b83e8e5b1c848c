"""The channels of a cluster, made from their settings."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.cache.channel import Channel
from kvcache_sim.cache.layered_channel import LayeredChannel
from kvcache_sim.cache.moves import AnyChannel
from kvcache_sim.cache.settings import ChannelSettings
from kvcache_sim.engine import Engine


def plain(settings: ChannelSettings) -> bool:
    """Return whether a job's times are final when it is queued: FIFO, in order."""
    return settings.sharing == "fifo" and settings.priority == "in-order"


def make_channels(settings: Mapping[str, ChannelSettings], engine: Engine) -> dict[str, AnyChannel]:
    """Return the channels by name.

    One that is shared fairly or serves loads first makes all of them event by event: a hop between the two
    kinds could not be fed layer by layer.
    """
    if all(plain(one) for one in settings.values()):
        return {name: Channel(one) for name, one in settings.items()}
    return {name: LayeredChannel(one, engine) for name, one in settings.items()}

"""The channels of a cluster, made from their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvcache_sim.channels.channel import Channel
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.channels.layered_channel import LayeredChannel
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.engine import Engine


def plain(settings: ChannelSettings) -> bool:
    """Return whether a job's times are final when it is queued: FIFO, in order."""
    return settings.sharing == "fifo" and settings.priority == "in-order"


class Channels(dict[str, AnyChannel]):
    """The channels by name; those between two machines are made when first used.

    One that is shared fairly or serves loads first makes all of them event by event, and so do read buffers
    (``by_event``): a hop between the two kinds could not be fed layer by layer. ``native``: FIFO channels
    are the core's, for machines that the core serves.
    """

    def __init__(
        self,
        settings: Mapping[str, ChannelSettings],
        reads: NetworkSettings,
        engine: Engine,
        handovers: NetworkSettings | None = None,
        by_event: bool = False,
        native: bool = False,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._native = native
        self._reads = reads
        self._handovers = handovers or reads
        defaults = (self._reads.default, self._handovers.default)
        #: Whether they are served layer by layer, event by event.
        self.by_layer = by_event or not all(plain(one) for one in (*settings.values(), *defaults))
        #: Whether some are slow for a time.
        self.slowed = any(one.slowdowns for one in (*settings.values(), *defaults))
        for name, one in settings.items():
            self[name] = self._make(one)

    def _make(self, settings: ChannelSettings) -> AnyChannel:
        if self.by_layer:
            return LayeredChannel(settings, self._engine)
        if settings.slowdowns:
            from kvcache_sim.channels.slowed_channel import SlowedChannel

            return SlowedChannel(settings)
        if self._native:
            from kvcache_sim import _core

            return _core.Channel(settings)
        return Channel(settings)

    def between(self, owner: int, reader: int) -> AnyChannel:
        """Return the channel over which ``reader`` reads from ``owner``."""
        return self._wire(self._reads, owner, reader)

    def handed_over(self, source: int, target: int) -> AnyChannel:
        """Return the channel over which ``source`` hands requests over to ``target``."""
        return self._wire(self._handovers, source, target)

    def _wire(self, network: NetworkSettings, source: int, target: int) -> AnyChannel:
        name = network.pairs.get((source, target))
        if name is None:
            name = f"{network.default.name}-{source}-{target}"
            if name not in self:
                self[name] = self._make(replace(network.default, name=name))
        return self[name]

"""The channels of a cluster, made from their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcache_sim.channels.channel import Channel
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.channels.layered_channel import LayeredChannel
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.engine import Engine

if TYPE_CHECKING:
    from kvcache_sim import _core


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
        #: Where the core serves them layer by layer: the events of all.
        self.timeline: _core.Timeline | None = None
        for name, one in settings.items():
            self[name] = self._make(one)

    def _make(self, settings: ChannelSettings) -> AnyChannel:
        if self.timeline is not None:
            from kvcache_sim import _core

            return _core.Channel(settings, self.timeline)
        if self.by_layer:
            return LayeredChannel(settings, self._engine)
        if self._native:
            from kvcache_sim import _core

            return _core.Channel(settings)
        if settings.slowdowns:
            from kvcache_sim.channels.slowed_channel import SlowedChannel

            return SlowedChannel(settings)
        return Channel(settings)

    def serve_in_core(self) -> dict[AnyChannel, AnyChannel]:
        """Let the core serve them layer by layer from now on; return by channel what is in its place.

        For channels that nothing has gone over yet.
        """
        from kvcache_sim import _core

        self.timeline = _core.Timeline()
        placed = {channel: self._make(channel.settings) for channel in self.values()}
        for name, channel in self.items():
            self[name] = placed[channel]
        return placed

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

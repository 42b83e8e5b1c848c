"""Construction of the channels of a cluster and of one machine's edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvcache_sim import _core
from kvcache_sim.base.values import Value
from kvcache_sim.channels.choice.policy import ChannelChoice
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings


class Edges(Value):
    """One channel for each edge between neighboring tiers, and the choice for edges with several.

    An edge is named after its tiers, source first: ``gpu->cpu``.
    """

    channels: Mapping[str, _core.Channel]
    #: All channels of the edges with several channels, by the channels' names.
    rails: Mapping[str, Mapping[str, _core.Channel]]
    #: True if the first channel of an edge carries everything.
    assigned: bool
    #: A plug-in that chooses among the channels of an edge.
    choice: ChannelChoice | None

    def carrying(self, edge: str) -> list[_core.Channel]:
        """Return the channels of an edge, the assigned channel first."""
        several = self.rails.get(edge)
        if several is None:
            return [self.channels[edge]]
        return list(several.values())[: 1 if self.assigned else None]


def plain(settings: ChannelSettings) -> bool:
    """Return True if a job's times are final when it is queued: FIFO, in order."""
    return settings.sharing == "fifo" and settings.priority == "in-order"


class Channels(dict[str, _core.Channel]):
    """The channels by name; channels between two machines are created on first use.

    A channel that is shared fairly or serves loads first makes all channels event-driven, and so do read
    buffers (``by_event``): a hop between the two kinds could not be fed layer by layer. ``used``: False if
    nothing is ever sent over them; unused channels have no events.
    """

    def __init__(
        self,
        settings: Mapping[str, ChannelSettings],
        reads: NetworkSettings,
        handovers: NetworkSettings | None = None,
        *,
        by_event: bool = False,
        used: bool = True,
    ) -> None:
        super().__init__()
        self._reads = reads
        self._handovers = handovers or reads
        defaults = (self._reads.default, self._handovers.default)
        by_layer = by_event or not all(plain(one) for one in (*settings.values(), *defaults))
        #: The events of all channels, if they are served layer by layer.
        self.timeline = _core.Timeline() if by_layer and used else None
        for name, one in settings.items():
            self[name] = _core.Channel(one, self.timeline)

    def between(self, owner: int, reader: int) -> _core.Channel:
        """Return the channel over which ``reader`` reads from ``owner``."""
        return self._wire(self._reads, owner, reader)

    def handed_over(self, source: int, target: int) -> _core.Channel:
        """Return the channel over which ``source`` hands requests over to ``target``."""
        return self._wire(self._handovers, source, target)

    def _wire(self, network: NetworkSettings, source: int, target: int) -> _core.Channel:
        name = network.pairs.get((source, target))
        if name is None:
            name = f"{network.default.name}-{source}-{target}"
            if name not in self:
                self[name] = _core.Channel(replace(network.default, name=name), self.timeline)
        return self[name]

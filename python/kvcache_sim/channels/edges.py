"""The channels of one machine's edges."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim import _core
from kvcache_sim.channels.choice.policy import ChannelChoice
from kvcache_sim.values import Value


class Edges(Value):
    """One channel for each edge between neighboring tiers, and the choice where an edge has several.

    An edge is named after its tiers, source first: ``gpu->cpu``.
    """

    channels: Mapping[str, _core.Channel]
    #: All channels of those edges that have several, by the channels' names.
    rails: Mapping[str, Mapping[str, _core.Channel]]
    #: Whether the first channel of an edge carries everything.
    assigned: bool
    #: A plug-in that chooses among the channels of an edge.
    choice: ChannelChoice | None

    def carrying(self, edge: str) -> list[_core.Channel]:
        """Return the channels that an edge may take, the first one assigned to it."""
        several = self.rails.get(edge)
        if several is None:
            return [self.channels[edge]]
        return list(several.values())[: 1 if self.assigned else None]

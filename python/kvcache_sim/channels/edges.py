"""The channels of one machine's edges."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.channels.channel import FifoLink
from kvcache_sim.channels.choice.policy import ChannelChoice, Sending
from kvcache_sim.channels.layered_channel import LayeredChannel

AnyChannel = FifoLink | LayeredChannel


class Edges:
    """One channel for each edge between neighbouring tiers; ``choice`` picks where an edge has several.

    An edge is named after its tiers, source first: ``gpu->cpu``. ``alternatives`` has all channels of those
    edges that have several, by the channels' names.
    """

    def __init__(
        self,
        machine: int,
        channels: Mapping[str, AnyChannel],
        alternatives: Mapping[str, Mapping[str, AnyChannel]],
        choice: ChannelChoice | None,
    ) -> None:
        self._machine = machine
        self.channels = channels
        self._alternatives = alternatives
        self._choice = choice

    def go_over(self, placed: Mapping[AnyChannel, AnyChannel]) -> None:
        """Take other channels in the place of those that it has."""
        self.channels = {edge: placed[channel] for edge, channel in self.channels.items()}
        self._alternatives = {
            edge: {name: placed[channel] for name, channel in several.items()}
            for edge, several in self._alternatives.items()
        }

    @property
    def chooses(self) -> bool:
        """Whether an edge has several channels."""
        return bool(self._alternatives)

    def carrying(self, edge: str) -> tuple[AnyChannel, ...]:
        """Return all channels that an edge may take, the first one assigned to it."""
        several = self._alternatives.get(edge)
        return (self.channels[edge],) if several is None else tuple(several.values())

    def choice(self, edge: str) -> tuple[ChannelChoice, Mapping[str, AnyChannel]] | None:
        """Return what chooses among the channels of an edge, and these by name; None where there is one."""
        several = self._alternatives.get(edge)
        return None if several is None or self._choice is None else (self._choice, several)

    def channel(self, edge: str, blocks: int, size_bytes: int, now_ns: int) -> AnyChannel:
        """Return the channel that a transfer over an edge takes now."""
        alternatives = self._alternatives.get(edge)
        if alternatives is None or self._choice is None:
            return self.channels[edge]
        sending = Sending(self._machine, edge, blocks, size_bytes, now_ns)
        return alternatives[self._choice.choose(sending, alternatives)]

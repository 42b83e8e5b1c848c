"""What a channel choice is: asked for each transfer over an edge that several channels carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from kvcache_sim.channels.channel import Link


class Sending(NamedTuple):
    """A transfer that is about to be queued."""

    machine: int
    #: Such as ``cpu->gpu``.
    edge: str
    blocks: int
    size_bytes: int
    now_ns: int


class ChannelChoice(Protocol):
    """Chooses among the channels that the scenario puts on one edge."""

    def choose(self, sending: Sending, channels: Mapping[str, Link]) -> str:
        """Return the name of one of ``channels``; looking at them changes nothing."""
        ...

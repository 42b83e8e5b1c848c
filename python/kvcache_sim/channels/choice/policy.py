"""The contract of a channel choice: called for each transfer over an edge with several channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from kvcache_sim.channels.channel import Link


class Sending(NamedTuple):
    """A transfer before it is queued."""

    machine: int
    #: Source and target tier, for example ``cpu->gpu``.
    edge: str
    blocks: int
    size_bytes: int
    now_ns: int


class ChannelChoice(Protocol):
    """Chooses among the channels that the scenario puts on one edge."""

    def choose(self, sending: Sending, channels: Mapping[str, Link]) -> str:
        """Return the channel of a transfer.

        Args:
            sending: The transfer: its edge, blocks, bytes and time (ns).
            channels: The channels of the edge by name, in the scenario's order; reading them changes nothing.

        Returns:
            One of the names in ``channels``.
        """
        ...

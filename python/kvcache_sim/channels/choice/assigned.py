"""The assigned channel: every edge has one."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.channels.channel import Link
from kvcache_sim.channels.choice.policy import Sending


class AssignedChannel:
    """Takes the first channel that names the edge; a scenario with a second one is refused."""

    def choose(self, sending: Sending, channels: Mapping[str, Link]) -> str:
        """Return the first."""
        return next(iter(channels))

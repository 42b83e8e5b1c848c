"""The emptiest channel: several links side by side, each transfer over the one that is free first."""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.channels.channel import Link
from kvcache_sim.channels.choice.policy import Sending


class EmptiestChannel:
    """The shortest queue in time; of equal ones the first that the scenario names."""

    def choose(self, sending: Sending, channels: Mapping[str, Link]) -> str:
        """Return the channel that would begin first."""
        return min(channels, key=lambda name: channels[name].wait_ns(sending.now_ns))

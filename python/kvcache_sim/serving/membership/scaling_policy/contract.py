"""The contract of a scaling policy: the state of the fleet and the wanted number of machines."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class FleetState(NamedTuple):
    """State of the fleet at a decision; figures of engines cover the machines that serve.

    Counts and use are those that the engines published last, as ``serving.router.report.published_by`` says:
    what an autoscaler reads from their metrics.
    """

    now_ns: int
    #: Machines that are sent requests, and ordered machines that are still starting.
    serving: int
    starting: int
    #: Requests that the engines' last schedules left (with those that wait for KV), and in their batches.
    waiting: int
    running: int
    #: Share of the GPUs' blocks that running requests hold, the mean of the machines.
    kv_use: float
    #: Requests that arrived since the last decision.
    arrived: int

    @property
    def machines(self) -> int:
        """Machines that are serving or ordered."""
        return self.serving + self.starting


class ScalingPolicy(Protocol):
    """A policy for the number of machines. Constructed once per run, from ``ScalingSettings``."""

    def wanted(self, state: FleetState) -> int:
        """Return the wanted number of machines.

        Args:
            state: State of the fleet at this decision; times in ns, shares from 0 to 1.

        Returns:
            The wanted number; the fleet's minimum and maximum bound it.
        """
        ...

"""How many machines should there be: what a scaling policy sees and says."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class FleetState(NamedTuple):
    """What a scaling policy sees at a decision; figures of engines are those of machines that serve."""

    now_ns: int
    #: Machines that are sent requests, and those ordered that are not yet there.
    serving: int
    starting: int
    #: Requests in the engines' queues (with those that wait for KV), and in their batches.
    waiting: int
    running: int
    #: Share of the GPUs' blocks that running requests hold, the mean of the machines.
    kv_use: float
    #: Requests that arrived since the last decision.
    arrived: int

    @property
    def machines(self) -> int:
        """Machines that are paid for to serve: there or ordered."""
        return self.serving + self.starting


class ScalingPolicy(Protocol):
    """Says how many machines a fleet should have. Made once a run, from ``ScalingSettings``."""

    def wanted(self, state: FleetState) -> int:
        """Return how many machines are wanted; the fleet's least and most bound it."""
        ...

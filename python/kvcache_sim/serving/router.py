"""Routers: which machine takes a request. One small class each, one row in ``ROUTERS``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.sequence import SequenceState


class Router(Protocol):
    """Chooses a machine for each request, in arrival order."""

    def choose(self, sequence: SequenceState, replicas: Sequence[Replica]) -> int:
        """Return the index of the machine."""
        ...


class RoundRobin:
    """Each machine in turn."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, sequence: SequenceState, replicas: Sequence[Replica]) -> int:
        """Return the next machine."""
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen


class LeastLoaded:
    """The machine with the fewest queued prompt tokens; ties go to the lower number."""

    def choose(self, sequence: SequenceState, replicas: Sequence[Replica]) -> int:
        """Return the least loaded machine."""
        return min(range(len(replicas)), key=lambda m: (replicas[m].queued_tokens, m))


#: Router policy → constructor.
ROUTERS: dict[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
}

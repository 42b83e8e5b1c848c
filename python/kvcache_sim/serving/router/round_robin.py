"""Round robin: each machine in turn."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.sequence import Arrival


class RoundRobin:
    """Each machine in turn."""

    def __init__(self, view: RouterView) -> None:
        self._machines = len(view.replicas)
        self._next = 0

    def choose(self, sequence: Arrival) -> int:
        """Return the next machine."""
        chosen = self._next
        self._next = (chosen + 1) % self._machines
        return chosen

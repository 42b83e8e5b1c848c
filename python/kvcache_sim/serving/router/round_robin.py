"""Round robin: each machine in turn."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.in_core import CoreRule, seen_by_core
from kvcache_sim.serving.sequence import Arrival


class RoundRobin:
    """Each machine in turn."""

    needs = Needs()

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._machines = len(view.replicas)
        self._next = 0

    def choose(self, sequence: Arrival) -> int:
        """Return the next machine."""
        chosen = self._next
        self._next = (chosen + 1) % self._machines
        return chosen

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core's, where it sees what this one does."""
        return seen_by_core(self._view, "round-robin")

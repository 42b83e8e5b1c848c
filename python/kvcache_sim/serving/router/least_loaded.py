"""Least loaded: the machine with the fewest queued tokens."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.in_core import CoreRule, seen_by_core
from kvcache_sim.serving.router.ties import Ties
from kvcache_sim.serving.sequence import Arrival


class LeastLoaded:
    """The machine with the fewest queued prompt tokens; ties by ``Ties``."""

    needs = Needs(engine_loads=True, load_alone=True)

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ties = Ties(len(view.replicas))

    def choose(self, sequence: Arrival) -> int:
        """Return the least loaded machine."""
        return self._ties.least(self._view.loads.queued_tokens())

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core's, where it sees what this one does."""
        return seen_by_core(self._view, "least-loaded")

"""Random: any machine, each as likely."""

from __future__ import annotations

from kvcache_sim.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival


class RandomChoice:
    """A machine drawn from the stream ``router`` of the run's seed."""

    needs = Needs()

    def __init__(self, view: RouterView) -> None:
        self._machines = len(view.replicas)
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return a machine drawn at random."""
        return int(self._draw.integers(self._machines))

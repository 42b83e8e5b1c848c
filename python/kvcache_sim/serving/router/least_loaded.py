"""Least loaded: the machine with the fewest queued tokens."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.sequence import SequenceState


class LeastLoaded:
    """The machine with the fewest queued prompt tokens; ties go to the lower number."""

    def __init__(self, view: RouterView) -> None:
        self._replicas = view.replicas

    def choose(self, sequence: SequenceState) -> int:
        """Return the least loaded machine."""
        queued = [replica.queued_tokens for replica in self._replicas]
        return queued.index(min(queued))

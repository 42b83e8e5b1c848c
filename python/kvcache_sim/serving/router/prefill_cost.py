"""Prefill cost: new prefill tokens × batch size (semantics 5)."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.router.ties import Ties
from kvcache_sim.serving.sequence import Arrival


class PrefillCost:
    """The smallest (prompt tokens not found there) × (requests there, this one included).

    Ties by ``Ties``.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ties = Ties(len(view.replicas))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest product."""
        new = self._view.new_prefill_tokens(sequence, self._view.look(sequence).found_blocks)
        costs = [tokens * (load + 1) for tokens, load in zip(new, self._view.loads.requests(), strict=True)]
        return self._ties.least(costs)

"""Prefill cost: new prefill tokens × batch size (semantics 5)."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.in_core import CoreRule, seen_by_core
from kvcache_sim.serving.router.ties import Ties
from kvcache_sim.serving.sequence import Arrival


class PrefillCost:
    """The smallest (prompt tokens not found there) × (requests there, this one included).

    Ties by ``Ties``.
    """

    needs = Needs(caches=True, engine_loads=True)

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ties = Ties(len(view.replicas))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest product."""
        new = self._view.new_prefill_tokens(sequence, self._view.look(sequence).found_blocks)
        costs = [tokens * (load + 1) for tokens, load in zip(new, self._view.loads.requests(), strict=True)]
        return self._ties.least(costs)

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core's, where it sees what this one does."""
        return seen_by_core(self._view, "prefill-cost", self._view.block_size_tokens)

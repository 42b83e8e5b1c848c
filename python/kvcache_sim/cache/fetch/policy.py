"""What a fetch policy is: given a plan, how many leading blocks to reuse."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.fetch.plan import Plan


class FetchPolicy(Protocol):
    """Decides between loading and recomputing, at each admission."""

    def reuse(self, plan: Plan) -> int:
        """Return how many leading blocks to reuse, at least ``plan.ready``, at most ``plan.end``."""
        ...

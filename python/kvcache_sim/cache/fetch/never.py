"""Never fetch: recompute what is not on the gpu."""

from __future__ import annotations

from kvcache_sim.cache.fetch.plan import Plan
from kvcache_sim.tiers import COMPUTE


class FetchNever:
    """Reuses what the gpu has, or is getting for another request."""

    def reuse(self, plan: Plan) -> int:
        """Return the gpu's part."""
        return max((part.end for part in plan.parts if part.tier == COMPUTE), default=0)

"""Best effort: reuse what is ready on gpu or cpu now, wait for nothing (HiCache's best_effort)."""

from __future__ import annotations

from kvcache_sim.cache.fetch.plan import Plan
from kvcache_sim.tiers import STAGING


class FetchBestEffort:
    """Cuts the run at the first block that would have to be waited for."""

    def reuse(self, plan: Plan) -> int:
        """Return the leading blocks that are ready on gpu or cpu."""
        reused = plan.ready
        for part in plan.parts:
            if part.tier > STAGING or not part.is_ready:
                break
            reused = max(reused, part.end)
        return reused

"""Split: load from the front, recompute the rest, cut where the prefill should end earliest."""

from __future__ import annotations

from kvcache_sim.cache.fetch.plan import Plan

#: Cuts that are tried, evenly spread and both ends included: the estimate is smooth.
_CUTS = 32


class FetchSplit:
    """Loads the first k blocks, where k is the best of up to 33 evenly spread cuts."""

    def reuse(self, plan: Plan) -> int:
        """Return the best cut; of equal ones the longest."""
        span = plan.end - plan.ready
        cuts = sorted({plan.ready + span * i // _CUTS for i in range(_CUTS + 1)}, reverse=True)
        return min(cuts, key=plan.done_ns)

"""Fetch what is cheaper: all of the run or nothing, whichever should end the prefill earlier."""

from __future__ import annotations

from kvcache_sim.cache.fetch.plan import Plan


class FetchCheaper:
    """Compares loading everything with recomputing everything that is not ready on the gpu."""

    def reuse(self, plan: Plan) -> int:
        """Return the end of the run, or of what is ready; loading wins ties."""
        return plan.end if plan.done_ns(plan.end) <= plan.done_ns(plan.ready) else plan.ready

"""Always fetch: reuse whatever is found."""

from __future__ import annotations

from kvcache_sim.cache.fetch.plan import Plan


class FetchAlways:
    """Loads the whole run."""

    def reuse(self, plan: Plan) -> int:
        """Return all of it."""
        return plan.end

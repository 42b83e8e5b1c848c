"""How much of a run its summary leaves out: a warm-up before and a cool-down behind."""

from __future__ import annotations

from kvcache_sim.values import Value


class Edge(Value):
    """How much of a run's begin or end is left out; nothing unless one is given."""

    auto: bool = False
    share: float | None = None
    time_ns: int | None = None
    requests: int | None = None

    def of(self, count: int) -> int:
        """Return how many of ``count`` requests are left out by number."""
        if self.requests is not None:
            return min(self.requests, count)
        return int(count * self.share) if self.share is not None else 0


class Measure(Value):
    """What is left out before and behind."""

    warmup: Edge = Edge()
    cooldown: Edge = Edge()

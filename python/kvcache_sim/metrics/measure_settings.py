"""Parts of a run that its summary leaves out: a warm-up at the start and a cool-down at the end."""

from __future__ import annotations

from kvcache_sim.base.values import Value


class Edge(Value):
    """Size of the part left out at one end of a run; nothing unless one field is given."""

    auto: bool = False
    share: float | None = None
    time_ns: int | None = None
    requests: int | None = None

    def of(self, count: int) -> int:
        """Return the number of ``count`` requests that are left out."""
        if self.requests is not None:
            return min(self.requests, count)
        return int(count * self.share) if self.share is not None else 0


class Measure(Value):
    """The parts left out at the start and at the end, and what arrives after a time."""

    warmup: Edge = Edge()
    cooldown: Edge = Edge()
    #: From the first arrival, or from the end of the preparation; None: no limit.
    duration_ns: int | None = None

"""By how much wall-clock time tokens were written after their simulated time: counted in small steps."""

from __future__ import annotations

from kvcache_sim.units import NS_PER_MS

_STEP_NS = NS_PER_MS // 20
#: Lags of a second and more count as this one.
_LONGEST_STEPS = 20_000


class TokenLags:
    """A histogram of lags. Memory: a number a step of 50 µs."""

    def __init__(self) -> None:
        self._counts = [0] * (_LONGEST_STEPS + 1)
        self._longest_ns = 0

    def add(self, lag_ns: int, tokens: int) -> None:
        """Count the lag of some tokens that shared a write: that of the first of them."""
        self._counts[min(max(lag_ns, 0) // _STEP_NS, _LONGEST_STEPS)] += tokens
        if lag_ns > self._longest_ns:
            self._longest_ns = lag_ns

    def percentile_ms(self, part: float) -> float:
        """Return the upper edge of the step in which that part of all lags ends, the longest lag at most."""
        wanted, seen = part * self.tokens, 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min((step + 1) * _STEP_NS, self._longest_ns) / NS_PER_MS
        return 0.0

    @property
    def tokens(self) -> int:
        """How many were counted."""
        return sum(self._counts)

    @property
    def text(self) -> str:
        """What is said at the end of a run."""
        p50, p90, p99, longest = (self.percentile_ms(part) for part in (0.5, 0.9, 0.99, 1.0))
        return f"p50 {p50:.2f}  p90 {p90:.2f}  p99 {p99:.2f}  max {longest:.2f} ms of {self.tokens:,} tokens"

"""Wall-clock delays of tokens after their simulated time, counted in small steps."""

from __future__ import annotations

from kvcache_sim.units import NS_PER_MS

_STEP_NS = NS_PER_MS // 20
#: Step of all lags of a second and more.
_LONGEST_STEPS = 20_000


class TokenLags:
    """A histogram of lags. Memory: one number per step of 50 µs."""

    def __init__(self) -> None:
        self._counts = [0] * (_LONGEST_STEPS + 1)
        self._longest_ns = 0

    def add(self, lag_ns: int, tokens: int) -> None:
        """Count the lag of ``tokens`` tokens in one write: the lag of the first."""
        self._counts[min(max(lag_ns, 0) // _STEP_NS, _LONGEST_STEPS)] += tokens
        if lag_ns > self._longest_ns:
            self._longest_ns = lag_ns

    def percentile_ms(self, part: float) -> float:
        """Return a percentile (ms): the upper edge of its step, at most the longest lag; ``part``: 0 to 1."""
        wanted, seen = part * self.tokens, 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min((step + 1) * _STEP_NS, self._longest_ns) / NS_PER_MS
        return 0.0

    @property
    def tokens(self) -> int:
        """Number of counted tokens."""
        return sum(self._counts)

    @property
    def text(self) -> str:
        """The line printed at the end of a run."""
        p50, p90, p99, longest = (self.percentile_ms(part) for part in (0.5, 0.9, 0.99, 1.0))
        return f"p50 {p50:.2f}  p90 {p90:.2f}  p99 {p99:.2f}  max {longest:.2f} ms of {self.tokens:,} tokens"

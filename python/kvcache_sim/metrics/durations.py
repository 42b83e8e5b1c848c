"""Statistics of the durations of one kind in a run, added in batches."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.percentiles import (
    PERCENTILES,
    STATISTICS,
    Distribution,
    counted,
    describe_counted,
    percentile,
)
from kvcache_sim.metrics.run import CountedTimes

#: Most durations that are kept exactly; with more, percentiles come from buckets.
EXACT_DURATIONS = 1_000_000

#: Bits of a double below the first ten of its fraction. Numbers that agree above them share a bucket, at
#: most 2⁻¹⁰ of its values wide; its middle is within 0.05 % of each.
_BUCKET_BITS = 42


class Durations:
    """Durations in ns, not negative; percentiles exact up to EXACT_DURATIONS, within 0.1 % for more.

    Count, mean, minimum and maximum are always exact. Cost: 8 bytes per duration that is not 0, up to
    EXACT_DURATIONS; then 16 bytes per bucket, with 1,024 buckets per doubling.
    """

    def __init__(self) -> None:
        self.count = 0
        self._zeros = 0
        self._pieces: list[NDArray[np.int64]] = []
        self._buckets: _Buckets | None = None

    def add(self, values_ns: NDArray[np.int64]) -> None:
        """Add durations."""
        others = values_ns[values_ns != 0]
        self.count += len(values_ns)
        self._zeros += len(values_ns) - len(others)
        if not len(others):
            return
        if self._buckets is None and self.count <= EXACT_DURATIONS:
            self._pieces.append(others)
            return
        if self._buckets is None:
            self._buckets = _Buckets(float(others.mean()))
            for piece in self._pieces:
                self._buckets.add(piece)
            self._pieces = []
        self._buckets.add(others)

    def describe(self) -> Distribution:
        """Return the statistics in ms; all None without durations."""
        if self._buckets is not None:
            return self._buckets.describe(self._zeros)
        values = counted(np.concatenate(self._pieces)) if self._pieces else CountedTimes(_NONE, _NONE)
        return describe_counted(_with_zeros(values, self._zeros))


_NONE = np.zeros(0, np.int64)


def _with_zeros(times: CountedTimes, zeros: int) -> CountedTimes:
    if not zeros:
        return times
    return CountedTimes(
        np.concatenate([[0], times.values_ns]).astype(np.int64),
        np.concatenate([[zeros], times.counts]).astype(np.int64),
    )


class _Buckets:
    """Positive durations counted by the first bits of their value as a double."""

    def __init__(self, near_ns: float) -> None:
        #: Squares of differences to a number near the mean are summed, which keeps small ones exact.
        self._near_ns = near_ns
        self._counts: dict[int, int] = {}
        self._total_ns = 0
        self._squares: list[float] = []
        self._min_ns, self._max_ns = 1 << 63, 0

    def add(self, values_ns: NDArray[np.int64]) -> None:
        buckets = counted(values_ns.astype(np.float64).view(np.int64) >> _BUCKET_BITS)
        for bucket, count in zip(buckets.values_ns.tolist(), buckets.counts.tolist(), strict=True):
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        high, low = values_ns >> 20, values_ns & 0xFFFFF
        self._total_ns += (int(high.sum()) << 20) + int(low.sum())
        self._squares.append(float(((values_ns - self._near_ns) ** 2).sum()))
        self._min_ns = min(self._min_ns, int(values_ns.min()))
        self._max_ns = max(self._max_ns, int(values_ns.max()))

    def describe(self, zeros: int) -> Distribution:
        buckets = sorted(self._counts)
        counts = np.array([self._counts[bucket] for bucket in buckets], np.int64)
        count = int(counts.sum()) + zeros
        mean_ns = self._total_ns / count
        squares = math.fsum([*self._squares, zeros * self._near_ns**2])
        variance = max(squares / count - (mean_ns - self._near_ns) ** 2, 0.0)
        least = (np.array(buckets, np.int64) << _BUCKET_BITS).view(np.float64)
        beyond = ((np.array(buckets, np.int64) + 1) << _BUCKET_BITS).view(np.float64)
        middles = np.clip(np.rint((least + beyond) / 2).astype(np.int64), self._min_ns, self._max_ns)
        values, counts = _with_zeros(CountedTimes(middles, counts), zeros)
        upper = np.cumsum(counts)
        found: Distribution = dict.fromkeys(STATISTICS)
        found |= {
            "avg": mean_ns / 1e6,
            "min": (0 if zeros else self._min_ns) / 1e6,
            "max": self._max_ns / 1e6,
            "std": math.sqrt(variance) / 1e6,
        }
        found |= {name: percentile(values, upper, percent) / 1e6 for name, percent in PERCENTILES.items()}
        return found

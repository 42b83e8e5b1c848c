"""The statistics of a latency, over plain values or a counted histogram.

Percentiles are linear between closest ranks (numpy's default): of n ascending values the p-th is at index
(n − 1)·p/100. The standard deviation is the population's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.run import CountedTimes

#: Statistics in AIPerf's order.
STATISTICS = ("avg", "min", "max", "p99", "p90", "p75", "p50", "std")
PERCENTILES = {"p99": 99, "p90": 90, "p75": 75, "p50": 50}

#: A distribution in ms by statistic; all None if nothing was measured.
Distribution = dict[str, float | None]


def describe(values_ns: NDArray[np.int64]) -> Distribution:
    """Return the statistics of durations in ns, in ms."""
    return describe_counted(counted(values_ns))


def counted(values_ns: NDArray[np.int64]) -> CountedTimes:
    """Return the count of each value; like ``np.unique``, which would first import ``numpy.ma``."""
    ordered = np.sort(values_ns)
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    bounds = np.concatenate([[0] if len(ordered) else [], changes, [len(ordered)]]).astype(np.int64)
    return CountedTimes(ordered[bounds[:-1]], np.diff(bounds))


def describe_counted(histogram: CountedTimes) -> Distribution:
    """Return the statistics of a counted histogram, in ms; each value has its count as weight.

    The sum is exact in integers; the result does not depend on the order of observation.
    """
    values, counts = histogram
    total = int(counts.sum())
    if total == 0:
        return dict.fromkeys(STATISTICS)
    mean_ns = _exact_sum(values, counts) / total
    spread = values - mean_ns
    variance = math.fsum((spread * spread * counts).tolist()) / total
    upper = np.cumsum(counts)
    result: Distribution = {
        "avg": mean_ns / 1e6,
        "min": int(values[0]) / 1e6,
        "max": int(values[-1]) / 1e6,
    }
    for name, percent in PERCENTILES.items():
        result[name] = percentile(values, upper, percent) / 1e6
    result["std"] = math.sqrt(variance) / 1e6
    return result


def _exact_sum(values: NDArray[np.int64], counts: NDArray[np.int64]) -> int:
    """Return the sum of values times counts, in two parts that each fit 64 bits."""
    high, low = values >> 20, values & 0xFFFFF
    return (int((high * counts).sum()) << 20) + int((low * counts).sum())


def percentile(values: NDArray[np.int64], upper: NDArray[np.int64], percent: int) -> float:
    """Return the percentile in ns; ``upper[i]`` counts the observations up to ``values[i]``."""
    last = int(upper[-1]) - 1
    below, hundredths = divmod(last * percent, 100)
    ranks = (below, min(below + 1, last))
    low, high = (int(values[np.searchsorted(upper, rank, "right")]) for rank in ranks)
    return low + (high - low) * hundredths / 100

"""Intervals by resampling: how far a difference could be chance.

Efron and Tibshirani, An Introduction to the Bootstrap (1993): percentile intervals. Requests near each other
in time share queues and batches, so stretches of √n requests in order of arrival are drawn, not single ones
(Künsch's block bootstrap, 1989); paired runs use the same stretches, so what they share cancels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.compare.samples import Samples, Statistic
from kvcache_sim.rng import stream

DRAWS = 300
_LOW, _HIGH = 2.5, 97.5


def resampled_rows(count: int) -> NDArray[np.int64]:
    """Return ``DRAWS`` rows of ``count`` indices each, drawn as stretches of about √count."""
    generator = stream(0, "compare.bootstrap")
    length = max(1, round(count**0.5))
    starts = generator.integers(0, count, size=(DRAWS, -(-count // length)))
    rows = (starts[:, :, None] + np.arange(length)) % count
    flat: NDArray[np.int64] = rows.reshape(DRAWS, -1)[:, :count]
    return flat


def drawn_values(samples: Samples, statistics: Sequence[Statistic]) -> NDArray[np.float64]:
    """Return each statistic over each draw: (draws, statistics). Cost: DRAWS passes over them."""
    rows = resampled_rows(len(samples))
    return np.array([[s.value(samples.chosen(row)) for s in statistics] for row in rows])


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % percentile interval of resampled values."""
    low, high = np.percentile(values, [_LOW, _HIGH])
    return float(low), float(high)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of one value a replication, by resampling replications."""
    array = np.asarray(values)
    generator = stream(0, "compare.replications")
    rows = generator.integers(0, len(array), size=(2000, len(array)))
    return interval(array[rows].mean(axis=1))

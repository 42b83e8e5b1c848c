"""Intervals of differences from stretches of time: requests near each other share queues and caches.

Each side is cut into ``STRETCHES`` runs of as many consecutive requests, in order of arrival. The error of a
difference is the larger of two: without each stretch in turn (the jackknife, Tukey 1958), and from stretch to
stretch (batch means; Law, Simulation Modeling and Analysis). With six stretches Student's t has five degrees
of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.compare.samples import Samples, Statistic

STRETCHES = 6
#: Student's t: 95 % of pairs of the same requests, 99 % of different ones, whose p99 has a longer tail.
_T_PAIRED, _T_APART = 2.571, 4.032


def stretch_values(samples: Samples, statistics: Sequence[Statistic]) -> NDArray[np.float64]:
    """Return each statistic without each stretch, and of each alone: (2, stretches, statistics).

    A stretch without a request, of fewer requests than stretches, has the value of all.
    """
    stretch = np.arange(len(samples)) * STRETCHES // max(len(samples), 1)

    def values(rows: NDArray[np.bool_]) -> list[float]:
        chosen = np.flatnonzero(rows if rows.any() else ~rows)
        return [statistic.value(samples.chosen(chosen)) for statistic in statistics]

    numbers = range(STRETCHES)
    return np.array([[values(stretch != n) for n in numbers], [values(stretch == n) for n in numbers]])


def change_interval(
    statistic: Statistic,
    ends: tuple[float, float],
    parts: tuple[NDArray[np.float64], NDArray[np.float64]],
    paired: bool,
) -> tuple[float, float]:
    """Return the interval of the change from ``ends[0]`` to ``ends[1]``: of ratios around its logarithm.

    ``parts`` are ``stretch_values`` of one statistic for both sides.
    """
    base, value = ends
    if not statistic.is_share and not (base > 0 and value > 0):
        return (0.0, 0.0) if base else (1.0, 1.0)
    scales = (1.0, 1.0) if statistic.is_share else ends
    deviations = [values / scale for values, scale in zip(parts, scales, strict=True)]
    if paired:
        error = _error(deviations[1] - deviations[0])
    else:
        error = (_error(deviations[0]) ** 2 + _error(deviations[1]) ** 2) ** 0.5
    half = error * (_T_PAIRED if paired else _T_APART)
    if statistic.is_share:
        return max(value - base - half, -1.0), min(value - base + half, 1.0)
    center = log(value / base)
    return exp(center - half), exp(center + half) if center + half < 700 else inf


def _error(values: NDArray[np.float64]) -> float:
    """Return the standard error of a figure from its values (without each stretch, of each alone)."""
    without, alone = (float(((row - row.mean()) ** 2).sum()) for row in values)
    left_out = without * (STRETCHES - 1) / STRETCHES
    return float(max(left_out, alone / (STRETCHES - 1) / STRETCHES) ** 0.5)

"""Resampling of requests as blocks in order of time: the intervals of figures over requests.

Requests near each other in time share queues and batches, so blocks of √n neighbors are drawn, not single
requests (Künsch's block bootstrap, 1989); the interval is the percentile interval of the draws (Efron and
Tibshirani, An Introduction to the Bootstrap, 1993).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.rng import stream

DRAWS = 300
_LOW, _HIGH = 2.5, 97.5


def drawn_blocks(count: int) -> tuple[NDArray[np.int64], int]:
    """Return the first index of each block of ``DRAWS`` draws (draws, blocks), and the length of a block.

    Blocks continue at index 0 behind the last one; the last block of a draw is cut to ``count`` in all.
    """
    length = max(1, round(count**0.5))
    starts = stream(0, "compare.bootstrap").integers(0, count, size=(DRAWS, -(-count // length)))
    return starts, length


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % percentile interval of resampled values."""
    low, high = np.percentile(values, [_LOW, _HIGH])
    return float(low), float(high)

"""Percentiles and distributions, the same way everywhere: linear interpolation between ranks (numpy's)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import KV_SOURCES

#: Positions at which a distribution curve is drawn: 200 points, denser at the tail.
_POSITIONS = np.unique(np.concatenate([np.linspace(0, 0.98, 150), 1 - np.geomspace(0.02, 1e-4, 50), [1.0]]))

HIT_CLASSES = ("full hit", "partial hit", "miss")


def distribution(values: NDArray[Any]) -> list[tuple[float, float]]:
    """Return (value, share of observations at or below it) at up to 200 points."""
    if len(values) == 0:
        return []
    if len(values) > len(_POSITIONS):
        positions = _POSITIONS
        points = np.quantile(values, positions)
    else:
        positions = (np.arange(len(values)) + 1) / len(values)
        points = np.sort(values)
    return [(float(value), float(share)) for value, share in zip(points, positions, strict=True)]


def percentile(values: NDArray[Any], share: float) -> float | None:
    """Return the percentile in [0, 100], or None of no values."""
    return float(np.percentile(values, share)) if len(values) else None


def hit_class(requests: dict[str, NDArray[Any]], block_size_tokens: int) -> NDArray[np.int8]:
    """Return the index into ``HIT_CLASSES`` of each request.

    A full hit had every block that may hit served from a tier: floor((n − 1) / block) blocks, as the last
    token is always computed, or all of them where the prefill was skipped.
    """
    cached = requests["cached_prefix_length_used"]
    possible = (requests["input_tokens"] - 1) // block_size_tokens * block_size_tokens
    full = (cached > 0) & (cached >= possible)
    return np.where(full, 0, np.where(cached > 0, 1, 2)).astype(np.int8)


def slowest_tier(requests: dict[str, NDArray[Any]]) -> NDArray[np.int8]:
    """Return the index into ``KV_SOURCES`` of the slowest source each request read from, −1 for none."""
    slowest = np.full(len(requests["request"]), -1, np.int8)
    for index, tier in enumerate(KV_SOURCES):
        slowest[requests[f"cached_{tier}_tokens"] > 0] = index
    return slowest

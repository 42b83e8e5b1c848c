"""Readings of a step function of capacity: knee, working set, footprint, and what a lower tier adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import HitSteps

Int64s = NDArray[np.int64]


#: The working set reaches this share of the hits of an unbounded cache.
WORKING_SET_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class ReferencePoints:
    """Capacities in blocks.

    ``knee``: the corner farthest above the straight line from nothing to the footprint (Kneedle, Satopää et
    al. 2011). A corner close to the line with less than half of the hits is none: where hits come late, the
    first few are no knee. ``working_set``: the smallest that reaches 99 % of the hits of an unbounded cache.
    ``footprint``: the smallest that reaches all of them; below a tier of this size a lower tier adds no hit.
    """

    knee_blocks: int
    working_set_blocks: int
    footprint_blocks: int


def reference_points(curve: HitSteps) -> ReferencePoints:
    """Return the reference points of a curve; all are 0 for a trace without reuse."""
    return ReferencePoints(curve.knee, curve.reaching(WORKING_SET_SHARE * curve.top), curve.last)


@dataclass(frozen=True, slots=True)
class LowerTier:
    """Hits in blocks that a tier of each capacity adds to the tiers above it, ``above_blocks`` in all.

    ``exclusive``: a block is in one tier, so the tiers are slices of one recency list. ``inclusive``: the
    lower tier also holds what is above it, so only what exceeds the largest tier above counts, and the
    tiers above find ``above_inclusive_hit_blocks`` instead of ``above_hit_blocks``.
    """

    capacities: Int64s
    above_blocks: int
    above_hit_blocks: int
    above_inclusive_hit_blocks: int
    exclusive: Int64s
    inclusive: Int64s


def lower_tier(curve: HitSteps, above: list[int], capacities: Int64s) -> LowerTier:
    """Return the curve of the tier below tiers of these sizes (fast to slow)."""
    total, largest = sum(above), max(above)
    found = curve.at(np.array([total, largest]))
    return LowerTier(
        capacities=capacities,
        above_blocks=total,
        above_hit_blocks=int(found[0]),
        above_inclusive_hit_blocks=int(found[1]),
        exclusive=curve.at(capacities + total) - found[0],
        inclusive=curve.at(np.maximum(capacities, largest)) - found[1],
    )

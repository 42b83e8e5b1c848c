"""A step function of capacity, such as the hits of LRU, exact at every capacity.

Its reference points are the knee, the working set and the footprint; a lower tier adds to the tiers above it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ramps:
    """Pieces that gain ``weight`` at each of ``count`` capacities from ``start`` on, one after another."""

    start: Int64s
    count: Int64s
    weight: Int64s


@dataclass(frozen=True, slots=True)
class Jumps:
    """Pieces that gain ``weight`` at once, at capacity ``start``."""

    start: Int64s
    weight: Int64s


class Steps:
    """The sum of ramps and jumps as a function of capacity; evaluating costs a binary search a capacity."""

    def __init__(self, ramps: Ramps, jumps: Jumps) -> None:
        ends = ramps.start + ramps.count
        self._starts = _Prefix(ramps.start, ramps.weight)
        self._ends = _Prefix(ends, ramps.weight)
        self._jumps = _Prefix(jumps.start, jumps.weight)
        corners = [ramps.start - 1, ends - 1, jumps.start - 1, jumps.start]
        self._corners = np.unique(np.concatenate([*corners, np.zeros(1, np.int64)]))

    def at(self, capacity: Int64s) -> Int64s:
        """Return the sum at each capacity."""
        rising = self._starts.linear(capacity) - self._ends.linear(capacity)
        return rising + self._jumps.constant(capacity)

    @property
    def corners(self) -> Int64s:
        """Return the capacities between which the sum is a straight line, ascending from 0."""
        return self._corners

    @property
    def last(self) -> int:
        """Return the smallest capacity with the largest sum."""
        return int(self._corners[-1])

    @property
    def top(self) -> int:
        """Return the sum at ``last`` and beyond."""
        return int(self.at(np.array([self.last]))[0])

    def reaching(self, amount: float) -> int:
        """Return the smallest capacity at which the sum is at least an amount."""
        low, high = 0, self.last
        while low < high:
            middle = (low + high) // 2
            if int(self.at(np.array([middle]))[0]) >= amount:
                high = middle
            else:
                low = middle + 1
        return low


class _Prefix:
    """Weights sorted by position, with running sums."""

    def __init__(self, position: Int64s, weight: Int64s) -> None:
        order = np.argsort(position, kind="stable")
        self.position = position[order]
        zero = np.zeros(1, np.int64)
        self.weight = np.concatenate([zero, np.cumsum(weight[order])])
        self.moment = np.concatenate([zero, np.cumsum(weight[order] * self.position)])

    def linear(self, capacity: Int64s) -> Int64s:
        """Return the sum of weight × (capacity − position + 1) over positions ≤ capacity."""
        k = np.searchsorted(self.position, capacity, side="right")
        result: Int64s = self.weight[k] * (capacity + 1) - self.moment[k]
        return result

    def constant(self, capacity: Int64s) -> Int64s:
        """Return the sum of weights over positions ≤ capacity."""
        result: Int64s = self.weight[np.searchsorted(self.position, capacity, side="right")]
        return result


#: The working set reaches this share of the hits of an unbounded cache.
WORKING_SET_SHARE = 0.99
#: Least height above the line of a knee with less than half of the hits, as a share of all hits.
_LEAST_EARLY_KNEE = 0.1


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


def reference_points(curve: Steps) -> ReferencePoints:
    """Return the reference points of a curve; all are 0 for a trace without reuse."""
    top, last = curve.top, curve.last
    if top == 0:
        return ReferencePoints(0, 0, 0)
    corners = curve.corners[curve.corners <= last]
    shares = curve.at(corners) / top
    above = shares - corners / last
    above[(shares < 0.5) & (above < _LEAST_EARLY_KNEE)] = -1.0
    return ReferencePoints(
        knee_blocks=int(corners[int(np.argmax(above))]),
        working_set_blocks=curve.reaching(WORKING_SET_SHARE * top),
        footprint_blocks=last,
    )


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


def lower_tier(curve: Steps, above: list[int], capacities: Int64s) -> LowerTier:
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

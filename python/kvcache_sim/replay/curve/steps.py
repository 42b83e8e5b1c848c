"""A staircase: how much is reached by each capacity, exact at every one."""

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
        """Return the smallest capacity at which everything is reached."""
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
    """Weights sorted by place, with running sums."""

    def __init__(self, place: Int64s, weight: Int64s) -> None:
        order = np.argsort(place, kind="stable")
        self.place = place[order]
        zero = np.zeros(1, np.int64)
        self.weight = np.concatenate([zero, np.cumsum(weight[order])])
        self.moment = np.concatenate([zero, np.cumsum(weight[order] * self.place)])

    def linear(self, capacity: Int64s) -> Int64s:
        """Return the sum of weight × (capacity − place + 1) over places ≤ capacity."""
        k = np.searchsorted(self.place, capacity, side="right")
        result: Int64s = self.weight[k] * (capacity + 1) - self.moment[k]
        return result

    def constant(self, capacity: Int64s) -> Int64s:
        """Return the sum of weights over places ≤ capacity."""
        result: Int64s = self.weight[np.searchsorted(self.place, capacity, side="right")]
        return result

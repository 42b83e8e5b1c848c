"""Lanes: slices of one row must not overlap, so those that do share a row's work in several lanes."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence


def lanes(groups: Sequence[Hashable], starts_ns: Sequence[int], ends_ns: Sequence[int]) -> list[int]:
    """Return a lane, from 0, for each slice so that those of one group in one lane never overlap.

    The fewest lanes that do: each slice, by its start, takes the lowest lane that is free.
    """
    lane = [0] * len(groups)
    free: dict[Hashable, list[int]] = {}
    busy: dict[Hashable, list[tuple[int, int]]] = {}
    for row in sorted(range(len(groups)), key=lambda row: (starts_ns[row], row)):
        group, start = groups[row], starts_ns[row]
        running, unused = busy.setdefault(group, []), free.setdefault(group, [])
        while running and running[0][0] <= start:
            heapq.heappush(unused, heapq.heappop(running)[1])
        lane[row] = heapq.heappop(unused) if unused else len(running)
        heapq.heappush(running, (max(ends_ns[row], start + 1), lane[row]))
    return lane

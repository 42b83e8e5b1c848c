"""Times from each token to the next one of its request, counted as the native core counts them."""

from __future__ import annotations

from collections import defaultdict


class TokenGaps:
    """A histogram of times in ns; eleven bits of each are kept."""

    def __init__(self) -> None:
        self._gaps: dict[int, int] = defaultdict(int)

    def add(self, gap_ns: int) -> None:
        """Count one."""
        self._gaps[gap_ns] += 1

    def histogram(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return lower edges, counts, count, sum, min, max."""
        buckets: dict[int, int] = defaultdict(int)
        for gap, times in self._gaps.items():
            shift = max(gap.bit_length() - 11, 0)
            buckets[gap >> shift << shift] += times
        edges = sorted(buckets)
        return (
            edges,
            [buckets[edge] for edge in edges],
            sum(self._gaps.values()),
            sum(gap * times for gap, times in self._gaps.items()),
            min(self._gaps, default=0),
            max(self._gaps, default=0),
        )

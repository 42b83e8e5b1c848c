"""Residuals of a step-time table's linear terms, by two counts: linear between sampled points."""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Value


class ResidualGrid(Value):
    """Nanoseconds by pairs of a count and tokens, interpolated linearly; constant past the borders.

    ``ns`` has a row for each count. Both axes rise and have two points or more, or the grid is empty: 0.
    """

    counts: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    ns: tuple[tuple[int, ...], ...] = ()

    def at(self, count: int, tokens: int) -> int:
        """Return the residual in ns, rounded down; two searches."""
        if not self.ns:
            return 0
        row, above, wide = _span(self.counts, count)
        column, right, long = _span(self.tokens, tokens)
        low, high = (
            self.ns[position][column] * (long - right) + self.ns[position][column + 1] * right
            for position in (row, row + 1)
        )
        return (low * (wide - above) + high * above) // (wide * long)

    def each(self, counts: NDArray[np.float64], tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the residual of each pair in ns, not rounded."""
        if not self.ns:
            return np.zeros(len(counts))
        ns = np.array(self.ns, np.float64)
        lines = np.stack([np.interp(tokens, self.tokens, row) for row in ns])
        positions = np.interp(counts, self.counts, np.arange(len(self.counts)))
        low = np.minimum(positions.astype(np.intp), len(self.counts) - 2)
        at, share = np.arange(len(counts)), positions - low
        return np.asarray(lines[low, at] * (1 - share) + lines[low + 1, at] * share, np.float64)

    def times(self, factor: float) -> ResidualGrid:
        """Return the grid with its times multiplied by a factor."""
        return ResidualGrid(
            self.counts, self.tokens, tuple(tuple(round(ns * factor) for ns in row) for row in self.ns)
        )

    def axes_and_ns(self) -> tuple[list[int], list[int], list[int]]:
        """Return counts, tokens, and the ns of all rows in order, in the core's form."""
        return list(self.counts), list(self.tokens), list(chain(*self.ns))


class Residuals(Value):
    """Residuals of a table's linear terms; a grid without points means 0.

    ``kv`` of a decode step, by its sequences and their mean KV; ``beside`` the same in a step with a chunk;
    ``past`` of a chunk with a past, by its tokens and the past's.
    """

    kv: ResidualGrid = ResidualGrid()
    beside: ResidualGrid = ResidualGrid()
    past: ResidualGrid = ResidualGrid()

    def times(self, decode: float, chunk: float) -> Residuals:
        """Return the residuals of decode steps, and of steps with a chunk, multiplied by factors."""
        return Residuals(self.kv.times(decode), self.beside.times(chunk), self.past.times(chunk))

    def of_decodes(self, sequences: int, kv_tokens: int, with_chunk: bool) -> int:
        """Return the residual of a step's decode sequences in ns."""
        grid = self.beside if with_chunk else self.kv
        return grid.at(sequences, kv_tokens // sequences) if sequences else 0

    def in_order(self) -> list[tuple[list[int], list[int], list[int]]]:
        """Return the three grids in the core's form."""
        return [grid.axes_and_ns() for grid in (self.kv, self.beside, self.past)]


def _span(axis: tuple[int, ...], value: int) -> tuple[int, int, int]:
    """Return the span that holds a value: index of its left end, the value's distance from it, its length."""
    value = min(max(value, axis[0]), axis[-1])
    left = min(bisect_right(axis, value), len(axis) - 1) - 1
    return left, value - axis[left], axis[left + 1] - axis[left]

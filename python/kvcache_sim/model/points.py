"""Measured or fitted times at counts: the points of a piecewise-linear curve."""

from __future__ import annotations

from typing import NamedTuple


class Point(NamedTuple):
    """A time at a count, such as of tokens, sequences or bytes."""

    at: float
    ms: float


Points = tuple[Point, ...]

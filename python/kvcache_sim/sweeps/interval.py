"""A range or a choice that random draws and the optimiser take values from, units kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.errors import UsageError
from kvcache_sim.sweeps.cell import Setting
from kvcache_sim.units import parse_rate_bytes_per_s, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values, equally likely."""

    values: tuple[Setting, ...]

    def draw(self, generator: np.random.Generator) -> Setting:
        """Return one value."""
        return self.values[int(generator.integers(len(self.values)))]


@dataclass(frozen=True, slots=True)
class Interval:
    """All values from ``low`` to ``high``, both included, even on a linear or a logarithmic scale.

    ``unit`` is written after a drawn value (``B``, ``ns``, ``B/s``, `` blocks``, or nothing for plain
    numbers); ``whole`` rounds to integers.
    """

    low: float
    high: float
    logarithmic: bool
    unit: str
    whole: bool

    def value(self, position: float) -> Setting:
        """Return the value at a position in [0, 1]."""
        if self.logarithmic:
            number = math.exp(math.log(self.low) + position * (math.log(self.high) - math.log(self.low)))
        else:
            number = self.low + position * (self.high - self.low)
        return self.format(min(max(number, self.low), self.high))

    def format(self, number: float) -> Setting:
        """Return a number as the setting a scenario reads."""
        plain: int | float = round(number) if self.whole else number
        return f"{plain}{self.unit}" if self.unit else plain

    def draw(self, generator: np.random.Generator) -> Setting:
        """Return one value."""
        return self.value(float(generator.random()))


def _blocks(text: str) -> int:
    number, _, word = text.strip().partition(" ")
    if word.strip() != "blocks":
        raise UsageError("not a number of blocks")
    return int(number)


_UNITS: tuple[tuple[Callable[[str], int], str], ...] = (
    (parse_size_bytes, "B"),
    (parse_time_ns, "ns"),
    (parse_rate_bytes_per_s, "B/s"),
    (_blocks, " blocks"),
)


def _bound(value: object, where: str) -> tuple[float, str, bool]:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return value, "", isinstance(value, int)
    for parse, unit in _UNITS:
        try:
            return parse(str(value)), unit, True
        except (UsageError, ValueError):
            continue
    raise UsageError(
        "not a bound", where=where, got=repr(value), expected="a number, size, rate, time or 'N blocks'"
    )


def interval(low: object, high: object, scale: str, where: str) -> Interval:
    """Return the interval between two bounds as a person wrote them; raises ``UsageError``."""
    start, unit, whole = _bound(low, where)
    end, other_unit, other_whole = _bound(high, where)
    if unit != other_unit:
        raise UsageError("bounds with different units", where=where, got=f"{low!r} and {high!r}")
    if scale not in ("linear", "log"):
        raise UsageError("unknown scale", where=where, got=repr(scale), expected="linear or log")
    if not start < end or (scale == "log" and start <= 0):
        expected = "low < high" + (", both above zero" if scale == "log" else "")
        raise UsageError("empty range", where=where, got=f"{low!r} to {high!r}", expected=expected)
    return Interval(start, end, scale == "log", unit, whole and other_whole)

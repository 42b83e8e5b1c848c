"""The settings that a study tries: the product of a grid, zipped columns, a list and draws from ranges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.units import parse_rate_bytes_per_s, parse_size_bytes, parse_time_ns
from kvcache_sim.extras.study.sweeps.cell import Setting

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
        """Return a number as the text of a setting."""
        plain: int | float = round(number) if self.whole else number
        return f"{plain}{self.unit}" if self.unit else plain

    def draw(self, generator: np.random.Generator) -> Setting:
        """Return one value."""
        return self.value(float(generator.random()))


def _counted(unit: str, text: str) -> int:
    number, _, word = text.strip().partition(" ")
    if word.strip() != unit:
        raise UsageError(f"not a number of {unit}")
    return int(number)


_UNITS: tuple[tuple[Callable[[str], int], str], ...] = (
    (parse_size_bytes, "B"),
    (parse_time_ns, "ns"),
    (parse_rate_bytes_per_s, "B/s"),
    (partial(_counted, "blocks"), " blocks"),
    (partial(_counted, "tokens"), " tokens"),
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
        "not a bound",
        where=where,
        got=repr(value),
        expected="a number, size, rate, time, 'N blocks' or 'N tokens'",
    )


def _is_size(value: object) -> bool:
    try:
        _bound(value, "")
    except UsageError:
        return False
    return True


def interval(low: object, high: object, scale: str, where: str) -> Interval:
    """Parse the interval between two bounds; raises ``UsageError``."""
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


#: More cells than this are refused before anything is laid out.
MAX_CELLS = 100_000

Settings = dict[str, Setting]


@dataclass(frozen=True, slots=True)
class Space:
    """The four sources of settings. A cell takes one row of each source present: their sizes multiply.

    ``grid`` maps a dotted setting to its values, all combinations; ``columns`` (``zip``) maps settings to
    equally long lists read row by row; ``points`` (``list``) are whole rows; ``draws`` are ``draw_count``
    random rows.
    """

    grid: Mapping[str, Sequence[Setting]] = field(default_factory=dict)
    columns: Mapping[str, Sequence[Setting]] = field(default_factory=dict)
    points: Sequence[Mapping[str, Setting]] = ()
    draws: Mapping[str, Interval | Choice] = field(default_factory=dict)
    draw_count: int = 0

    def factors(self) -> dict[str, int]:
        """Return the number of rows of each part that is present."""
        sizes = {f"grid {name}": len(values) for name, values in self.grid.items()}
        sizes |= {"zip": len(next(iter(self.columns.values())))} if self.columns else {}
        sizes |= {"list": len(self.points)} if self.points else {}
        sizes |= {"random": self.draw_count} if self.draws else {}
        return sizes

    def compares_kinds(self) -> bool:
        """Return True if a setting has different values of which one is no number, size, rate or time."""
        columns: dict[str, list[Setting]] = {
            name: list(values) for name, values in {**self.grid, **self.columns}.items()
        }
        for point in self.points:
            for name, value in point.items():
                columns.setdefault(name, []).append(value)
        for name, dimension in self.draws.items():
            columns[name] = list(dimension.values) if isinstance(dimension, Choice) else []
        return any(
            len({repr(v) for v in values}) > 1 and not all(map(_is_size, values))
            for values in columns.values()
        )

    def size(self) -> int:
        """Return the number of rows; raises ``UsageError`` with the product above ``MAX_CELLS``."""
        factors = self.factors()
        product = math.prod(factors.values())
        if product > MAX_CELLS:
            raise UsageError(
                "too many cells",
                got=f"{' × '.join(str(n) for n in factors.values())} = {product:,}",
                expected=f"at most {MAX_CELLS:,}",
                hint="try fewer values, or random draws",
            )
        return product

    def rows(self, seed: int) -> Iterator[Settings]:
        """Yield every row in a fixed order; the random draws come from the stream ``sweep.random``."""
        self.size()
        parts: list[list[Settings]] = [
            [{name: value} for value in values] for name, values in self.grid.items()
        ]
        if self.columns:
            parts.append(
                [
                    dict(zip(self.columns, row, strict=True))
                    for row in zip(*self.columns.values(), strict=True)
                ]
            )
        if self.points:
            parts.append([dict(point) for point in self.points])
        if self.draws:
            generator = stream(seed, "sweep.random")
            parts.append(
                [
                    {name: dimension.draw(generator) for name, dimension in self.draws.items()}
                    for _ in range(self.draw_count)
                ]
            )
        for combination in itertools.product(*parts):
            yield {name: value for part in combination for name, value in part.items()}

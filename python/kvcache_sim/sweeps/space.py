"""Which settings a study tries: the product of a grid, zipped columns, a list and random draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvcache_sim.errors import UsageError
from kvcache_sim.rng import stream
from kvcache_sim.sweeps.cell import Setting
from kvcache_sim.sweeps.interval import Choice, Interval

#: More cells than this are refused before anything is laid out.
MAX_CELLS = 100_000

Settings = dict[str, Setting]


@dataclass(frozen=True, slots=True)
class Space:
    """The four ways to name settings. A cell takes one of each that is present: their sizes multiply.

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
        """Return how many rows each part has; parts that are absent are left out."""
        sizes = {f"grid {name}": len(values) for name, values in self.grid.items()}
        sizes |= {"zip": len(next(iter(self.columns.values())))} if self.columns else {}
        sizes |= {"list": len(self.points)} if self.points else {}
        sizes |= {"random": self.draw_count} if self.draws else {}
        return sizes

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

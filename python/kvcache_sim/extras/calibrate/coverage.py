"""Coverage of the stated intervals: each measured run judged by the rule without that run.

A run is left out with all simulations of it, whatever their source. Runs of one deployment (model, GPU, and
engine with version) share unknown errors: leaving out all of a deployment shows how often the intervals hold
the truth of an unmeasured one; leaving out a whole GPU or engine, that of a new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from kvcache_sim.base.values import Value
from kvcache_sim.model.run_errors import Factors, MeasuredRun
from kvcache_sim.model.run_rule import Rule, run_interval

#: Least share of truths held, and largest ratio of the half-width to the error, of which the goal speaks.
LEAST_HELD, MOST_RATIO = 0.85, 3.0
GROUPS: dict[str, Callable[[MeasuredRun], tuple[str, ...]]] = {
    "run": lambda run: (run.group, run.deployment, run.run),
    "deployment": lambda run: (run.group, run.deployment),
    "gpu": lambda run: (run.gpu,),
    "engine": lambda run: (run.kind.engine,),
}


class Judged(Value):
    """A figure of a run with the factors stated of it; ``held``: its true value lies within."""

    run: MeasuredRun
    figure: str
    factors: Factors

    @property
    def held(self) -> bool:
        """True if the interval holds the true value."""
        true, simulated = self.run.values[self.figure]
        return self.factors.low * simulated <= true <= self.factors.high * simulated

    @property
    def half_width(self) -> float:
        """Half of the interval, over the true value."""
        true, simulated = self.run.values[self.figure]
        return (self.factors.high - self.factors.low) / 2 * simulated / true

    @property
    def error(self) -> float:
        """The absolute error, over the true value."""
        true, simulated = self.run.values[self.figure]
        return abs(simulated / true - 1)


class Topic(NamedTuple):
    """The topic of a cell: a kind of source and a load, and one figure or all of them (``""``)."""

    source: str
    family: str
    engine: str
    load: str
    figure: str


class Cell(Value):
    """Coverage of the figures of one kind and load: of one ``figure``, or of all of them (``""``)."""

    source: str
    family: str
    engine: str
    load: str
    figure: str
    count: int
    held: float
    half_width: float
    error: float

    @property
    def ratio(self) -> float:
        """The median half-width in median errors."""
        return self.half_width / self.error if self.error else float("inf")

    @property
    def meets_goal(self) -> bool:
        """True if the interval holds enough truths and is no wider than the goal."""
        return self.held >= LEAST_HELD and self.ratio <= MOST_RATIO


def judged(runs: Sequence[MeasuredRun], by: str = "run") -> Iterator[Judged]:
    """Yield every figure of every run with the interval of the rule without its group (``GROUPS``).

    Figures of a source that has fewer than three other runs with them have no interval, and are left out.
    """
    groups: dict[tuple[str, ...], list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        groups[GROUPS[by](run)].append(run)
    for name, together in groups.items():
        sources = {run.kind.source for run in together}
        others = [run for other, group in groups.items() if other != name for run in group]
        rule = Rule([run for run in others if run.kind.source in sources])
        for run in together:
            for figure in run.values:
                factors = run_interval(rule, run, figure)
                if factors is not None:
                    yield Judged(run, figure, factors)


def cells(found: Iterable[Judged]) -> list[Cell]:
    """Return the coverage of each kind and load: of all its figures, then of each."""
    of: dict[Topic, list[Judged]] = defaultdict(list)
    for one in found:
        kind = one.run.kind
        for figure in ("", one.figure):
            of[Topic(kind.source, kind.family, kind.engine, one.run.load, figure)].append(one)
    return [cell(topic, judged_runs) for topic, judged_runs in sorted(of.items())]


def cell(topic: Topic, found: Sequence[Judged]) -> Cell:
    """Return the coverage of some figures."""
    held = sum(one.held for one in found) / len(found)
    half_width, error = (
        median(values) for values in zip(*((j.half_width, j.error) for j in found), strict=True)
    )
    return Cell(*topic, len(found), held, half_width, error)

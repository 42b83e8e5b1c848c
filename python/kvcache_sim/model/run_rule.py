"""The rule that makes 90 % intervals of the errors of whole runs, by kind of source, load and figure.

A replay with every step at the bounds shows what the errors of steps do to a run; whole runs show errors that
no step has (front ends, queues that began otherwise). ``combined`` puts both together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kvcache_sim.base.values import Value
from kvcache_sim.model.run_errors import LOADS, RATE, Factors, Kind, MeasuredRun

#: Runs from which quantiles are taken, and from which a pool of runs is used at all.
_MANY, _FEWEST = 19, 3
#: Share of the runs' weight in an interval. With 0.936 a run left out is held in nine of ten cases, and one
#: of a deployment of which no run is known in 85 % (``kvsim calibrate coverage``).
_SHARE = 0.945
#: 95 % quantile of Student's t by degrees of freedom, from 1.
_T = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76, 1.75, 1.75, 1.74)
#: Half-width of repeated runs of one configuration, in logarithms: means of 3.1 % (TPOT) and 6.4 % (TTFT) in
#: aiconfigurator-core 0.12's ``silicon_sample.csv``. No interval says more of a run than a second run does.
_REPEATS = {"ttft": 0.062}
_REPEAT = 0.031
#: Times the move of the steps themselves from which the move of a figure counts as amplified.
_AMPLIFIED = 1.25


class RunError(NamedTuple):
    """The error of a run, the logarithm of true over simulated, and the name of its deployment."""

    log_ratio: float
    deployment: str


class Interval(Value):
    """Factors that hold 90 % of the errors, the number of runs behind them, and whether these are its own.

    ``is_own`` is False where too few runs of that kind and load have the figure, and related ones count.
    """

    factors: Factors
    runs: int
    is_own: bool


def interval_of(errors: Sequence[RunError], figure: str = "") -> Factors:
    """Return the factors that hold 90 % of errors of a figure like these.

    From 19 errors on: the shortest interval that holds ``_SHARE`` of them by weight. Of fewer: that of one
    more draw from a normal distribution (Student's t). It is widened to hold what a repeated run shows on
    either side of the value as simulated.
    """
    count = len(errors)
    if count >= _MANY:
        low, high = _shortest(errors)
    else:
        values = [error.log_ratio for error in errors]
        mean = math.fsum(values) / count
        spread = math.sqrt(math.fsum((error - mean) ** 2 for error in values) / (count - 1))
        half = _T[count - 2] * spread * math.sqrt(1 + 1 / count)
        low, high = mean - half, mean + half
    least = _REPEATS.get(figure.split("_")[0], _REPEAT)
    return Factors(math.exp(min(low, -least)), math.exp(max(high, least)))


def _shortest(errors: Sequence[RunError]) -> tuple[float, float]:
    """Return the shortest interval of a share of the weight; a deployment weighs the root of its runs."""
    runs = Counter(error.deployment for error in errors)
    ordered = sorted((error, runs[name] ** -0.5) for error, name in errors)
    wanted = _SHARE * math.fsum(weight for _, weight in ordered) - 1e-9
    best, last, held = (-math.inf, math.inf), 0, 0.0
    for first, (low, weight) in enumerate(ordered):
        while last < len(ordered) and held < wanted:
            held += ordered[last][1]
            last += 1
        if held < wanted:
            break
        high = ordered[max(last - 1, first)][0]
        if high - low < best[1] - best[0]:
            best = (low, high)
        held -= weight
    return best


class Rule:
    """The intervals that some runs give; of a kind with too few runs, those of related runs."""

    def __init__(self, runs: Sequence[MeasuredRun]) -> None:
        self._runs = runs
        self._known: dict[tuple[Kind, str, str], Interval | None] = {}

    def figure(self, kind: Kind, load: str, figure: str) -> Interval | None:
        """Return the interval of a figure; None if fewer than three runs of the source have it.

        The runs are those of the kind and load. If fewer than three have the figure: those of the kind at
        every load, then those of other engines, each at this load first, then of the other family. A rate is
        that of arrivals until the knee, which no source knows better than others: runs of all sources
        at this load count.
        """
        key = (kind, load, figure)
        if key not in self._known:
            self._known[key] = self._found(kind, load, figure)
        return self._known[key]

    def steps(self, kind: Kind) -> Interval | None:
        """Return the interval of step times: that of TPOT at low load, which steps alone make."""
        return self.figure(kind, LOADS[0], "tpot_mean")

    def _found(self, kind: Kind, load: str, figure: str) -> Interval | None:
        """Return the interval that holds those of a figure and of the figures like it."""
        of_source = [run for run in self._runs if figure == RATE or run.kind.source == kind.source]
        pools = [lambda run: run.load == load] if figure == RATE else _pools(kind, load)
        for at, is_alike in enumerate(pools):
            pool = [run for run in of_source if is_alike(run)]
            each = [
                [RunError(run.error(name), run.deployment) for run in pool if name in run.values]
                for name in _like(figure)
            ]
            each = [errors for errors in each if len(errors) >= _FEWEST]
            if each:
                found = [interval_of(errors, figure) for errors in each]
                held = Factors(min(one.low for one in found), max(one.high for one in found))
                return Interval(held, max(map(len, each)), at == 0)
        return None


def _like(figure: str) -> tuple[str, ...]:
    """Return a figure, and after a percentile of TTFT, which few runs have, its mean."""
    return (figure, "ttft_mean") if figure in ("ttft_p50", "ttft_p99") else (figure,)


def _pools(kind: Kind, load: str) -> Iterator[Callable[[MeasuredRun], bool]]:
    def same_kind(run: MeasuredRun) -> bool:
        return run.kind == kind

    def same_family(run: MeasuredRun) -> bool:
        return run.kind.family == kind.family

    yield lambda run: same_kind(run) and run.load == load
    yield same_kind
    yield lambda run: same_family(run) and run.load == load
    yield same_family
    yield lambda _: True


def run_interval(rule: Rule, run: MeasuredRun, figure: str) -> Factors | None:
    """Return the factors that a rule states of a figure of a run; None if it states none."""
    steps, whole = rule.steps(run.kind), rule.figure(run.kind, run.load, figure)
    if steps is None or whole is None:
        return None
    moves = [0.0, *(run.move(figure, bound) for bound in steps.factors)]
    replayed = Factors(math.exp(min(moves)), math.exp(max(moves)))
    return combined(figure, whole.factors, steps.factors, replayed)


def combined(figure: str, whole: Factors, steps: Factors, replayed: Factors) -> Factors:
    """Return the factors of a figure from the errors of whole runs, those of steps, and the replays' moves.

    Whole runs contain what errors of steps do to a figure that moves as the steps do. What replays show
    beyond that (queues, the cache, links) counts as an independent error: on each side the root of the sum
    of squares of the logarithms. Measured rates are mostly those of arrivals, so their replays count whole.
    """
    known = 0.0 if figure == RATE else _AMPLIFIED * max(-math.log(steps.low), math.log(steps.high))
    low, high = (
        math.hypot(math.log(factor), math.sqrt(max(math.log(moved) ** 2 - known**2, 0.0)))
        for factor, moved in zip(whole, replayed, strict=True)
    )
    return Factors(math.exp(-low), math.exp(high))

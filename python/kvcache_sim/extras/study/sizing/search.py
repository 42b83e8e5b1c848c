"""The highest step that attains: outwards in growing strides, then bisection; each a run of the scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.metrics.batches import batch_count
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.measurement import MeasuredRequests
from kvcache_sim.metrics.parts import Part, arrays_of
from kvcache_sim.metrics.request_totals import beyond_context
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.slo import AttainmentTotals, Objectives
from kvcache_sim.scenario.cost import with_cost
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.measure import measured_requests, measured_summary
from kvcache_sim.scenario.step_time_source import summarize_step_times
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.workload.toolbox.transforms import scale
from kvcache_sim.workload.trace import Trace

#: A step up is a rate of 2 % more.
STEP = Fraction(51, 50)
#: About a factor of two: the first stride of a search.
_STRIDE = 35
#: Up to one more than so many sessions a step is a session.
_SINGLE = 50
#: Digits of a speed: rates that differ by less are one.
_DENOMINATOR = 10**9


def speed_of(step: int) -> Fraction:
    """Return how many times faster than recorded the arrivals of a step are: 1.02 to its power."""
    return (STEP**step).limit_denominator(_DENOMINATOR)


def sessions_of(step: int) -> Fraction:
    """Return the sessions at a time of a step from 0 on: one more up to 51, then 2 % more, in whole ones."""
    return Fraction(step + 1 if step < _SINGLE else int((_SINGLE + 1) * STEP ** (step - _SINGLE)))


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search: neighboring steps, of which the lower attains and the upper does not.

    ``attains`` is None where no step did, ``fails`` None where every step did.
    """

    attains: int | None
    fails: int | None


def highest_attaining(attains: Callable[[int], bool], lowest: int, highest: int) -> Found:
    """Return the highest step in [lowest, highest] that attains, as far as attaining is monotone.

    Each step is tried once, and about log2 of the distance from step 0 are tried twice. Step 0 is first.
    """
    start = min(max(0, lowest), highest)
    if attains(start):
        low, high = _outwards(attains, start, highest, want=False)
        if high is None:
            return Found(low, None)
    else:
        high_step, low_step = _outwards(attains, start, lowest, want=True)
        if low_step is None:
            return Found(None, high_step)
        low, high = low_step, high_step
    while high - low > 1:
        middle = (low + high) // 2
        if attains(middle):
            low = middle
        else:
            high = middle
    return Found(low, high)


def _outwards(attains: Callable[[int], bool], start: int, end: int, want: bool) -> tuple[int, int | None]:
    """Return the last step from start towards end without the wanted result, and the first step with it.

    The second is None where ``end`` has not the wanted result either.
    """
    sign = 1 if end >= start else -1
    last, stride = start, _STRIDE
    while last != end:
        step = last + sign * min(stride, abs(end - last))
        if attains(step) == want:
            return last, step
        last, stride = step, 2 * stride
    return last, None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run at some load: True if it attains, and its summary if it ran to its end."""

    #: The speed of arrivals, or the number of sessions at a time.
    load: Fraction
    attains: bool
    #: Requests a second that arrived, over the whole run; None where it was aborted.
    rate_per_s: float | None
    summary: dict[str, Any] | None
    #: The factor to each end of the 95 % interval of the rate over requests (``rate_spread``).
    spread: float | None = None

    @property
    def attainment(self) -> float | None:
        """The share within all limits, None where the run was aborted."""
        share: float | None = self.summary["slo"]["attainment"] if self.summary is not None else None
        return share


class _SearchAborted(Exception):
    """Too many requests missed their limits for the run to attain."""


class _Misses:
    """Count measured requests that miss their objectives, and abort the run beyond the allowed number."""

    def __init__(self, measured: MeasuredRequests, objectives: Objectives, allowed: float) -> None:
        self._measured, self._allowed = measured, allowed
        self._totals = AttainmentTotals(objectives)

    def take(self, part: Part) -> None:
        rows = arrays_of(part)
        inside = self._measured.is_measured(rows)
        if inside is None:  # decided by the whole run only
            return
        if self._measured.contexts is not None:
            inside = inside & ~beyond_context(rows, self._measured.contexts)
        self._totals.add({name: column[inside] for name, column in rows.items()})
        if self._totals.missed > self._allowed:
            raise _SearchAborted


class Probe:
    """A scenario and its requests, run at several loads. Cost: one run a load, less where it is aborted."""

    def __init__(self, scenario: Scenario, trace: Trace, attain: float) -> None:
        self._scenario, self._trace, self._attain = scenario, trace, attain
        self.runs = 0

    def loaded(self, load: Fraction) -> tuple[Scenario, Trace]:
        """Return the scenario and its requests at a load: here, a speed of their arrivals."""
        return self._scenario, scale(self._trace, load)

    def at(self, load: Fraction, whole: bool = False) -> Outcome:
        """Return the outcome at a load; a run that can no longer attain is aborted, unless ``whole``."""
        self.runs += 1
        scenario, trace = self.loaded(load)
        measured = measured_requests(scenario, trace)
        simulation = Simulation(scenario.settings, trace, RunOptions(marks_ns=measured.marks_ns))
        if not whole and measured.objectives is not None:
            allowed = (1 - self._attain) * len(trace) + 1e-6  # at most this many requests are judged
            simulation.recorder.watch(_Misses(measured, measured.objectives, allowed).take)
        try:
            run = simulation.run()
        except _SearchAborted:
            return Outcome(load, False, None, None)
        rate = arrival_rate(run)
        _, summary, _ = measured_summary(scenario, run, measured)
        summary = {**with_cost(scenario, summary), **summarize_step_times(scenario)}
        share = summary["slo"]["attainment"]
        attains = share is not None and share >= self._attain - 1e-12
        rows = arrays_of(run.requests)
        chosen = measured.is_inside(rows) & (rows["status"] == STATUSES.index("finished"))
        spread = rate_spread({name: rows[name][chosen] for name in ("arrival_ns", "finish_ns")})
        return Outcome(load, attains, rate, summary, spread)


def arrival_rate(run: Run) -> float | None:
    """Return the arrivals a second from the first to the last request; None where no time passed."""
    arrival_ns = np.asarray(run.requests["arrival_ns"])
    span = int(arrival_ns.max() - arrival_ns.min()) if len(arrival_ns) else 0
    return (len(arrival_ns) - 1) * NS_PER_S / span if span else None


#: 97.5 % quantiles of Student's t distribution for the degrees of freedom of 10 and of 20 batches.
_T = {10: 2.262, 20: 2.093}


def rate_spread(rows: Mapping[str, NDArray[Any]]) -> float | None:
    """Return the factor to each end of the 95 % interval of a held rate, from finished requests.

    The load of some requests is the time that they spend in the machines for each second in which they
    arrive; the rate held is inverse to it. Its error follows from batches of time, as many as ``compare``
    has. Rates of arrivals drift over a trace, so each batch is compared with the next (von Neumann,
    Distribution of the ratio of the mean square successive difference to the variance, Ann. Math. Stat. 12,
    1941), not with the mean.

    None for too few requests, or for a batch whose requests all arrive at once.
    """
    count = batch_count(len(rows["arrival_ns"]))
    if not count:
        return None
    order = np.argsort(rows["arrival_ns"], kind="stable")
    arrival_ns, finish_ns = rows["arrival_ns"][order], rows["finish_ns"][order]
    batch = np.arange(len(order) - 1) * count // (len(order) - 1)
    stayed, passed = (
        np.bincount(batch, times_ns.astype(float), count)
        for times_ns in ((finish_ns - arrival_ns)[1:], np.diff(arrival_ns))
    )
    if not (stayed > 0).all() or not (passed > 0).all():
        return None
    steps = np.diff(np.log(stayed / passed))
    return math.exp(_T[count] * math.sqrt(float((steps**2).mean()) / 2 / count))

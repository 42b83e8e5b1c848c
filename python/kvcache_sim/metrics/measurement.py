"""Totals of the measured part of a run, and the request from which on the run is settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import significant
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.measure_settings import Measure
from kvcache_sim.metrics.parts import Part, arrays_of, parts_of
from kvcache_sim.metrics.request_totals import RequestTotals
from kvcache_sim.metrics.run import CodedText, Run
from kvcache_sim.metrics.saturation import SampledArrivals
from kvcache_sim.metrics.slo import Objectives
from kvcache_sim.metrics.windows import Windows, between_marks
from kvcache_sim.workload.sessions import jobs_of
from kvcache_sim.workload.trace import OPEN_LOOP, Trace

if TYPE_CHECKING:
    from kvcache_sim.metrics.request_intervals import RequestTimes

#: With ``auto``, the parts of the requests that may be left out: sixteenths, up to the first half.
_PARTS, _MOST_PARTS = 16, 8
#: Least number of requests for a decision.
_LEAST_REQUESTS = 40
#: Share of use from which a tier counts as full.
_FULL = 0.95
#: Figures from the first measured request's arrival on, if arrivals are known.
OF_ITS_TIME = (
    "latency.itl",
    "cache.evictions",
    "cache.dropped_blocks",
    "cache.merged_blocks",
    "tiers",
    "channels",
    "handover.bytes",
    "speculation",
    "cache_groups",
    "fleet",
    "router",
)
#: Figures that are always counted over the whole run.
WHOLE_RUN = (
    "tiers.<tier>.duplicate_blocks",
    "tiers.<tier>.no_effect",
    "prefix_cache.events",
    "context_window",
    "fleet.changes",
    "schedule",
    "simulated_s",
)


_NO_END = 1 << 62
_REJECTED = STATUSES.index("rejected")


#: First arrival of the measured requests, and first arrival after them.
Span = tuple[int, int | None]


class MeasuredRequests:
    """Totals of the measured requests; rows are added in file order, in batches.

    With ``auto`` there are totals for nine starts; one start is chosen at the end of the run.
    """

    def __init__(
        self,
        block_size_tokens: int,
        measure: Measure,
        trace: Trace | None,
        objectives: Objectives | None = None,
        reusable_tokens: NDArray[np.int64] | None = None,
        contexts: NDArray[np.int64] | None = None,
    ) -> None:
        self.measure, self.objectives = measure, objectives
        self.windows = Windows()
        #: Each finished request's times, if they are kept.
        self.times: RequestTimes | None = None
        #: By machine, most tokens of a prompt and its answer; None: no machine has a limit.
        self.contexts = contexts
        #: True once a row was added.
        self.began = False
        self._end, begins = _NO_END, [0]
        self._from_ns, self._to_ns = 0, _NO_END
        #: Start → its ``Span``, if it is known before the run.
        self._spans: dict[int, Span] = {}
        #: Requests that filled caches first; none of them is measured.
        self._preparation = first = 0 if trace is None else trace.preparation
        if trace is not None and (measure != Measure() or first):
            n = len(trace) - first
            self._end = first + n - measure.cooldown.of(n)
            begins = [first + measure.warmup.of(n)]
            if measure.warmup.auto:
                begins = sorted({first + n * part // _PARTS for part in range(_MOST_PARTS + 1)})
            self._from_ns, self._to_ns = _times(measure, trace)
        #: The end of the preparation so far.
        self._prepared_ns = 0
        #: True if each arrival is known before the run; a stream has no other arrivals.
        self._is_open = trace is None or _is_open(trace)
        self._arrival_ns = trace.arrival_ns if trace is not None and self._is_open else None
        #: Numbers of rejected requests, by batch.
        self._rejected: list[NDArray[np.int32]] = []
        # a part of a run would cut off jobs
        jobs = jobs_of(trace) if trace is not None and measure == Measure() and not first else None
        self._totals = {
            begin: RequestTotals(block_size_tokens, objectives, jobs, reusable_tokens, contexts)
            for begin in begins
        }
        #: Number of the first measured request, once known.
        self._begin = begins[0] if len(begins) == 1 else None
        if begins[0] >= self._end:
            raise _nothing_left()
        if trace is not None and measure != Measure() and self._is_open:
            self._spans = {begin: self._span(trace, begin) for begin in begins if begin < self._end}

    @property
    def marks_ns(self) -> tuple[int, ...]:
        """Return the times at which the run must save its counts."""
        return tuple(sorted({at for span in self._spans.values() for at in span if at is not None}))

    def _span(self, trace: Trace, begin: int) -> Span:
        arrival_ns = trace.arrival_ns
        first = max(int(arrival_ns[begin : self._end].min()), self._from_ns)
        if self._to_ns != _NO_END:
            return first, max(first, self._to_ns)
        behind = arrival_ns[self._end :]
        return first, max(first, int(behind.min())) if len(behind) else None

    def add(self, part: Part) -> None:
        """Add the columns of some rows of ``requests``."""
        rows = arrays_of(part)
        self.began = True
        self.windows.add(rows)
        self._rejected.append(rows["request"][rows["status"] == _REJECTED])
        self._see_preparation(rows)
        if self.times is not None:
            self.times.add(rows)
        for begin, totals in self._totals.items():
            inside = self._inside(rows, begin)
            totals.add(part if inside.all() else {name: column[inside] for name, column in rows.items()})

    def is_measured(self, part: Part) -> NDArray[np.bool_] | None:
        """Return a mask of the measured rows; None before the end if it depends on the whole run."""
        rows = arrays_of(part)
        self._see_preparation(rows)
        return None if self._begin is None else self._inside(rows, self._begin)

    def _see_preparation(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Move the end of the measured time behind requests of the preparation among some rows."""
        if self._preparation and self.measure.duration_ns is not None and "finish_ns" in rows:
            ends_ns = rows["finish_ns"][rows["request"] < self._preparation]
            self._prepared_ns = max(self._prepared_ns, int(ends_ns.max(initial=0)))
            self._to_ns = self._prepared_ns + self.measure.duration_ns

    def is_inside(self, rows: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return a mask of the measured rows, from their numbers and arrivals, after the run."""
        assert self._begin is not None, "the run has ended"
        return self._inside(rows, self._begin)

    def _inside(self, rows: Mapping[str, NDArray[Any]], begin: int) -> NDArray[np.bool_]:
        number, arrival_ns = rows["request"], rows["arrival_ns"]
        inside: NDArray[np.bool_] = (number >= begin) & (number < self._end)
        return inside & (arrival_ns >= self._from_ns) & (arrival_ns < self._to_ns)

    def judged(self, part: Part) -> Part:
        """Return some rows with the column ``within_slo``, if there are objectives."""
        if self.objectives is None:
            return part
        return {**part, "within_slo": self.objectives.within(arrays_of(part))}

    def chosen(self, run: Run) -> tuple[Run, RequestTotals, dict[str, Any] | None, tuple[str, ...]]:
        """Return the run with the counts of the measured part.

        The other values are the totals for the summary, its entry on the window, and remarks.
        """
        begin, settled = next(iter(self._totals)), self._settled_request(run)
        if self.measure.warmup.auto:
            begins = list(self._totals)
            begin = begins[-1] if settled is None else next((b for b in begins if b >= settled), begins[-1])
        self._begin, totals = begin, self._totals[begin]
        if not totals.arrived and self.windows.requests:
            raise _nothing_left()
        span = self._spans.get(begin)
        part = run if span is None or span[0] not in run.marks else between_marks(run, *span)
        said = self._said(begin, settled, totals)
        if said is not None:
            said["whole_run"] = [*(OF_ITS_TIME if part is run else ()), *WHOLE_RUN]
        return part, totals, said, self._remarks(settled)

    def arrivals(self) -> SampledArrivals | None:
        """Return arrivals of the measured requests that no machine rejected.

        Arrivals of a stream are even in each window of requests. None if some arrivals depend on the run.
        """
        if not self._is_open:
            return None
        if self._arrival_ns is None:
            return self.windows.spread_arrivals()
        served = np.ones(len(self._arrival_ns), np.bool_)
        served[np.concatenate([np.zeros(0, np.int32), *self._rejected])] = False
        chosen = slice(self._begin, self._end)
        known = self._arrival_ns[chosen][served[chosen]]
        return SampledArrivals(known[(known >= self._from_ns) & (known < self._to_ns)], 1)

    def _settled_request(self, run: Run) -> int | None:
        """Return the request from which on the hit rate is steady and the tiers are at their final use."""
        if self.windows.requests < _LEAST_REQUESTS:
            return 0
        steady = self.windows.settled_window()
        if steady is None:
            return None
        window = max(steady, self.windows.window_at(_full_from_ns(run)))
        return window * self.windows.size if window <= len(self.windows.sums) // 2 else None

    def _said(self, begin: int, settled: int | None, totals: RequestTotals) -> dict[str, Any] | None:
        if self.measure == Measure() and not self._preparation:
            return None
        return {
            "from_request": begin,
            "to_request": self._end,
            "requests": totals.arrived,
            "settled": settled is not None,
        }

    def _remarks(self, settled: int | None) -> tuple[str, ...]:
        quarters = self.windows.by_quarter() if self.windows.requests >= 1000 else None
        if quarters is None:
            return ()
        rates = quarters[:, 2] / np.maximum(quarters[:, 1], 1)
        shown = ", ".join(significant(100 * rate) for rate in rates)
        warnings = []
        apart = float(abs(rates[0] - rates[-1]))
        if apart > 0.005 and apart > 0.03 * float(rates.max()):
            if settled is None:
                warnings.append(
                    f"the hit rate is still changing at the end ({shown} % by quarter): results depend on "
                    "the trace's length"
                )
            elif settled and self.measure == Measure():
                warnings.append(
                    f"the first {settled:,} requests or so fill the tiers (hit rate {shown} % by quarter): "
                    "measure.warmup=auto leaves them out"
                )
        return tuple(warnings)


def _is_open(trace: Trace) -> bool:
    """Return True if each arrival is known before the run."""
    return bool((trace.think_ns == OPEN_LOOP).all())


def _nothing_left() -> UsageError:
    return UsageError("nothing is left to measure", where="measure", hint="leave less out")


def _times(measure: Measure, trace: Trace) -> tuple[int, int]:
    """Return the first and the last time at which measured requests arrive."""
    known: NDArray[np.int64] = trace.arrival_ns[trace.think_ns == OPEN_LOOP]
    first = int(known.min()) if len(known) else 0
    begin = first + measure.warmup.time_ns if measure.warmup.time_ns is not None else 0
    end = _NO_END if measure.duration_ns is None else first + measure.duration_ns
    if measure.cooldown.time_ns is None:
        return begin, end
    if len(known) < len(trace):
        raise UsageError(
            "a time before the end is not known",
            where="measure.cooldown",
            got="requests that wait for others",
            expected="a share or a number of requests",
        )
    return begin, min(int(known.max()) - measure.cooldown.time_ns + 1, end)


def _full_from_ns(run: Run) -> int:
    """Return the time (ns) at which the last bounded tier is near its maximum use."""
    free: dict[str, dict[int, float]] = {}
    for part in parts_of(run.series):
        for tier, times_ns, values in _free_by_tier(part):
            total = free.setdefault(tier, {})
            for time_ns, blocks in zip(times_ns, values, strict=True):
                total[time_ns] = total.get(time_ns, 0.0) + blocks
    full = 0
    for total in free.values():
        most = max(total.values())
        if most > 1 << 50:
            continue  # an unbounded tier is never full
        fullest = most - min(total.values())
        full = max(full, next(at for at, blocks in total.items() if most - blocks >= _FULL * fullest))
    return full


def _free_by_tier(part: Part) -> Iterator[tuple[str, list[int], list[float]]]:
    """Yield each tier in some rows of the series with the times and the free blocks of all machines."""
    names = part["name"]
    if not isinstance(names, CodedText):
        return
    time_ns, value = np.asarray(part["time_ns"]), np.asarray(part["value"])
    for code, word in enumerate(names.words):
        tier, dot, what = word.partition(".")
        if dot and what == "free" and f"{tier}.cached" in names.words:
            of_tier = names.codes == code
            if not of_tier.any():
                continue
            times, window = np.unique(time_ns[of_tier], return_inverse=True)
            yield tier, times.tolist(), np.bincount(window, value[of_tier], len(times)).tolist()

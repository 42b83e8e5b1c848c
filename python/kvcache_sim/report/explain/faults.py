"""Faults of a run: what was lost, what started again, and when TTFT was back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kvcache_sim.base.units import format_time_ms, format_time_ns
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.finished import FinishedRun, number_column, text_column
from kvcache_sim.report.time_series import series_names
from kvcache_sim.scenario.fleet_events import FleetEvent, event_text, faults_until

#: Requests, in order of arrival, whose median TTFT is compared with the median before the first fault.
RECENT = 20
#: TTFT is back where that median is at most so many times the median before.
BACK = 1.1
#: Faults that get a sentence of their own.
_SHOWN = 5


class Recovery(NamedTuple):
    """The effect of a fault on TTFT, up to the next one."""

    at_ns: int
    text: str
    #: Median TTFT before the first fault.
    usual_ns: float
    #: Largest median of ``RECENT`` requests from the fault on.
    worst_ns: float
    #: Time from the fault until TTFT was back; 0: it never rose; None: not before the next fault or the end.
    back_ns: int | None


def recoveries(run: FinishedRun) -> list[Recovery]:
    """Return the faults of a run with their recovery; none where too few requests surround them."""
    rows = run.finished
    order = np.argsort(rows["arrival_ns"], kind="stable")
    arrival_ns, first_ns = rows["arrival_ns"][order], rows["first_token_ns"][order]
    faults = _faults(run)
    if not faults or np.count_nonzero(first_ns <= faults[0].at_ns) < RECENT:
        return []
    usual_ns = float(np.median((first_ns - arrival_ns)[first_ns <= faults[0].at_ns]))
    found = []
    ends = [*(fault.at_ns for fault in faults[1:]), int(first_ns.max()) + 1]
    for fault, end_ns in zip(faults, ends, strict=True):
        at_ns = fault.at_ns
        inside = (first_ns > at_ns) & (arrival_ns < end_ns)
        if np.count_nonzero(inside) < RECENT:
            continue
        medians = np.median(sliding_window_view((first_ns - arrival_ns)[inside], RECENT), axis=1)
        high = np.flatnonzero(medians > BACK * usual_ns)
        back_ns: int | None = 0
        if len(high):
            low = np.flatnonzero(medians[high[0] :] <= BACK * usual_ns)
            back = arrival_ns[inside][high[0] + low[0]] if len(low) else None
            back_ns = None if back is None else max(int(back) - at_ns, 0)
        found.append(Recovery(at_ns, event_text(fault), usual_ns, float(medians.max()), back_ns))
    return found


def _faults(run: FinishedRun) -> list[FleetEvent]:
    return faults_until(run.scenario, int(run.requests["finish_ns"].max(initial=0)))


def recovered(case: Case) -> str | None:
    """TTFT after each fault, and the time until it was back."""
    found = recoveries(case.run)
    said = [_sentence(one) for one in found[:_SHOWN]]
    more = len(found) - _SHOWN
    return " ".join([*said, *([f"{more:,} more faults follow."] if more > 0 else [])]) or None


def _sentence(one: Recovery) -> str:
    usual, worst = format_time_ms(one.usual_ns / 1e6), format_time_ms(one.worst_ns / 1e6)
    start = f"At {format_time_ns(one.at_ns)} {one.text}:"
    if one.back_ns == 0:
        return f"{start} the median TTFT of {RECENT} requests stayed within 10 % of {usual}."
    end = "did not come back before the next fault or the end"
    if one.back_ns is not None:
        end = f"was back within 10 % after {format_time_ns(one.back_ns)}"
    return f"{start} the median TTFT of {RECENT} requests rose from {usual} to {worst} and {end}."


def losses(case: Case) -> str | None:
    """Machines and copies lost, and requests that started again or failed."""
    fleet = case.run.summary.get("fleet", {})
    failed = int(np.count_nonzero(case.run.requests["status"] == STATUSES.index("failed")))
    counts = {
        "machines": fleet.get("lost"),
        "blocks on them at the last sample before": _blocks_of_machines(case.run),
        "tiers": fleet.get("tiers_lost"),
        "copies on lost tiers": fleet.get("blocks_lost"),
        "router indexes": fleet.get("index_lost"),
    }
    lost = [f"{what} {count:,}" for what, count in counts.items() if count]
    again = f"requests started again {fleet.get('retried', 0):,}, failed {failed:,}"
    return f"Lost: {', '.join(lost)}; {again}." if lost else None


def _blocks_of_machines(run: FinishedRun) -> int:
    """Return the blocks of lost machines on all their tiers, at the last sample before each loss."""
    names, series = series_names(run), run.series
    kept = [n for n, name in enumerate(names) if name.endswith((".cached", ".held"))]
    time_ns, machine, value = (number_column(series[name]) for name in ("time_ns", "machine", "value"))
    of_tiers, found = np.isin(text_column(series["name"]).codes, kept), 0
    for fault in _faults(run):
        there = of_tiers & (machine == fault.machine) & (time_ns < fault.at_ns)
        if fault.do == "lose" and there.any():
            found += int(value[there & (time_ns == time_ns[there].max())].sum())
    return found

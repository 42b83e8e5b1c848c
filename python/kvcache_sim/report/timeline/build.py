"""The timeline of a run: its requests, its window, and the size limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.ttft_parts import columns_before_admission
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.timeline.machinery import CHANNELS_PID, counter_records, machinery_records
from kvcache_sim.report.timeline.requests import request_records
from kvcache_sim.report.timeline.trace_json import compressed, naming_records

#: The viewer opens about 100 MB of JSON; a record is about 150 bytes.
_MAX_RECORDS = 600_000
_RECORDS_A_REQUEST = 7
_RECORDS_A_TRANSFER = 4  # its slice and the three ends of its arrow


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a run that is drawn. ``window_ns`` is [from, to); None is all of it."""

    window_ns: tuple[int, int] | None = None
    #: At most so many requests, evenly chosen by arrival; None: as many as fit.
    most_requests: int | None = None


def timeline(run: FinishedRun, selection: Selection, warn: Callable[[str], None]) -> bytes:
    """Return the run's timeline as gzipped trace JSON.

    Requests that overlap the window are drawn whole; steps, transfers and samples that begin in it. Raises
    ``UsageError`` when nothing lies in the window. ``warn`` is called with the parts left out for size.
    """
    low, high = selection.window_ns or (-(2**62), 2**62)
    rows = run.finished
    inside = (rows["arrival_ns"] < high) & (rows["finish_ns"] >= low)
    rows = {name: values[inside] for name, values in rows.items()}
    if not len(rows["request"]):
        raise UsageError(
            "no request in this window", where="--window", hint="times count from the run's start"
        )
    events = _cut(run.events, (run.events["time_ns"] >= low) & (run.events["time_ns"] < high))  # type: ignore[operator]
    series = _cut(run.series, (run.series["time_ns"] >= low) & (run.series["time_ns"] < high))  # type: ignore[operator]
    series = _thinned(series, warn)
    rows = _sampled(rows, selection.most_requests, len(series["time_ns"]), warn)
    events = _fitting(events, len(rows["request"]) * _RECORDS_A_REQUEST + len(series["time_ns"]), warn)
    slices, names, tracks = request_records(rows)
    begins = rows["arrival_ns"] + sum(rows[column] for column in columns_before_admission())
    starts = dict(zip(rows["request"].tolist(), begins.tolist(), strict=True))
    machinery, rows_of_machines = machinery_records(events, starts, tracks)
    machines = {track.pid for track in {**names, **rows_of_machines}} | {
        int(machine) + 1 for machine in np.unique(series["machine"]) if machine >= 0
    }
    processes = {pid: f"machine {pid - 1}" for pid in sorted(machines)} | {CHANNELS_PID: "channels"}
    records = naming_records(processes, {**rows_of_machines, **names})
    records += slices + machinery + counter_records(series)
    if not any(word in _words(events) for word in ("step", "transfer")):
        warn("the run recorded no steps and transfers: 'kvsim simulate --record all' keeps them")
    return compressed(records, {"run": run.label})


def _words(events: dict[str, Any]) -> set[str]:
    kinds: CodedText = events["kind"]
    return {kinds.words[code] for code in np.unique(kinds.codes).tolist()}


def _cut(columns: Any, chosen: NDArray[Any]) -> dict[str, Any]:
    return {
        name: CodedText(values.codes[chosen], values.words)
        if isinstance(values, CodedText)
        else values[chosen]
        for name, values in columns.items()
    }


def _sampled(
    rows: dict[str, NDArray[Any]], most: int | None, samples: int, warn: Callable[[str], None]
) -> dict[str, NDArray[Any]]:
    count = len(rows["request"])
    record_limit = max(1, (_MAX_RECORDS - samples) // _RECORDS_A_REQUEST // 2)
    kept = min(count, record_limit if most is None else most)
    if kept == count:
        return rows
    if most is None:
        warn(f"{kept:,} of {count:,} requests drawn, evenly chosen, so that a viewer can open the file")
    chosen = np.argsort(rows["arrival_ns"], kind="stable")[np.linspace(0, count - 1, kept).astype(int)]
    chosen = np.sort(np.unique(chosen))
    return {name: values[chosen] for name, values in rows.items()}


def _thinned(series: dict[str, Any], warn: Callable[[str], None]) -> dict[str, Any]:
    """Return samples at evenly chosen sampling times, so that they fill at most a third of the file."""
    times = np.unique(series["time_ns"])
    per_time = max(1.0, len(series["time_ns"]) / max(1, len(times)))
    kept = int(_MAX_RECORDS / 3 / per_time)
    if len(times) <= kept:
        return series
    warn(f"samples of {kept:,} of {len(times):,} sampling times drawn")
    chosen = times[np.linspace(0, len(times) - 1, max(1, kept)).astype(int)]
    return _cut(series, np.isin(series["time_ns"], chosen))


def _fitting(events: dict[str, Any], taken: int, warn: Callable[[str], None]) -> dict[str, Any]:
    kinds: CodedText = events["kind"]
    drawn = [index for index, word in enumerate(kinds.words) if word in ("step", "transfer", "evict")]
    rows = np.flatnonzero(np.isin(kinds.codes, drawn))
    record_limit = max(0, _MAX_RECORDS - taken) // _RECORDS_A_TRANSFER
    if len(rows) > record_limit:
        last_s = float(events["time_ns"][rows[record_limit]]) / 1e9
        warn(f"steps and transfers are drawn up to {last_s:,.3f} s only: choose a part with --window")
        rows = rows[:record_limit]
    return _cut(events, rows)

"""Hit rate and attainment over time, with the events of the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side
from kvcache_sim.report.time_series import time_axis

#: Windows from the first arrival to the last.
WINDOWS = 40
_KIND, _TITLE = "fleet", "The fleet's events"
_DEFINITION = (
    "By window of arrivals: the share of prompt tokens served from a cache, and of requests within their "
    "limits (with slo; without it, those that finished). Rules: machines that join, drain or are lost, "
    "tiers and indexes lost, channels slowed."
)


def windows_of(run: FinishedRun) -> list[dict[str, Value]]:
    """Return by window its start in s, requests, hit rate and attainment, None where nothing arrived."""
    rows = run.requests
    arrival = rows["arrival_ns"]
    if not len(arrival):
        return []
    first, last = int(arrival.min()), int(arrival.max())
    width = max(1, -(-(last - first + 1) // WINDOWS))
    window = (arrival - first) // width
    done = rows["status"] == 0
    limited = "within_slo" in rows and bool((rows["within_slo"] >= 0).any())
    within = rows["within_slo"] == 1 if limited else done
    judged = rows["within_slo"] >= 0 if limited else np.ones(len(done), np.bool_)

    def summed(values: NDArray[Any]) -> list[int]:
        return [int(n) for n in np.bincount(window, values, WINDOWS)[:WINDOWS]]

    hits, tokens = summed(rows["cached_prefix_length_used"] * done), summed(rows["input_tokens"] * done)
    met, of, count = summed(within & judged), summed(judged), summed(np.ones(len(done)))
    return [
        {
            "s": round((first + k * width) / 1e9, 3),
            "requests": count[k],
            "hit_rate": hits[k] / tokens[k] if tokens[k] else None,
            "attainment": met[k] / of[k] if of[k] else None,
        }
        for k in range(WINDOWS)
    ]


def scaled(run: FinishedRun) -> list[tuple[int, str]]:
    """Return the time and description of each event of a scaling policy."""
    changes = run.summary.get("fleet", {}).get("changes", [])
    return [
        (round(change["s"] * 1e9), f"machine {change['machine']} {_SAID[change['change']]}")
        for change in changes
    ]


_SAID = {"ordered": "is ordered", "serves": "serves", "drains": "drains", "off": "is off"}


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return a line each for hit rate and attainment, and a rule an event."""
    import altair as alt

    from kvcache_sim.scenario.fleet_events import event_texts

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    shown = []
    for run in runs:
        events = event_texts(run.scenario, int(run.requests["finish_ns"].max(initial=0)))
        events += scaled(run)
        if not events:
            continue
        shown.append(run.label)
        for window in windows_of(run):
            for name in ("hit_rate", "attainment"):
                share = window[name]
                if isinstance(share, float):
                    point = {"run": run.label, "s": window["s"], "share": round(share, 4)}
                    data.append({**point, "name": name.replace("_", " "), "what": ""})
            table.append((run.label, *window.values()))
        for at_ns, what in events:
            at: dict[str, Value] = {"run": run.label, "s": round(at_ns / 1e9, 3), "share": None}
            data.append({**at, "name": "event", "what": what})
    if not data:
        return NothingToDraw(_KIND, _TITLE, "no machine came, went or failed")
    base = alt.Chart().encode(x=time_axis("arrival", data))
    lines = (
        base.transform_filter("datum.name != 'event'")
        .mark_line(interpolate="step-after")
        .encode(
            y=alt.Y("share:Q", title="share", axis=alt.Axis(format="%")),
            color=alt.Color("name:N", scale=colour_scale(("hit rate", "attainment")), title=None),
            tooltip=["run:N", "name:N", "s:Q", "share:Q"],
        )
    )
    rules = (
        base.transform_filter("datum.name == 'event'")
        .mark_rule(strokeDash=[3, 3])
        .encode(tooltip=["what:N", "s:Q"])
    )
    chart = side_by_side(alt.layer(lines, rules), shown, height=200)
    headings = ("run", "window from, s", "requests", "hit rate", "attainment")
    return Picture(_KIND, _TITLE, _DEFINITION, data, chart, Table(headings, tuple(table)))

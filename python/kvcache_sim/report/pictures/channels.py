"""The use of each channel over time, and the waits of its transfers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side
from kvcache_sim.report.time_series import drawn_as, series_names, summed_over_machines, thinned, time_axis

_TITLE = "Channels"
_DEFINITION = (
    "Use: share of the time a channel was sending, between samples. Waiting: time jobs spent in its queue, "
    "summed over the run, and per second of the run. Beyond six channels the least used are drawn as one, "
    "their mean."
)


def channel_names(run: FinishedRun) -> list[str]:
    """Return the run's channels."""
    prefix, suffix = "channel.", ".busy_ns"
    return sorted(
        n[len(prefix) : -len(suffix)]
        for n in series_names(run)
        if n.startswith(prefix) and n.endswith(suffix)
    )


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return use over time of the busiest channels; the table has all of them."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    uses = [
        {name: summed_over_machines(run, f"channel.{name}.busy_ns") for name in channel_names(run)}
        for run in runs
    ]
    most: dict[str, float] = {}
    for busy in uses:
        for name, (_, values) in busy.items():
            most[name] = max(most.get(name, 0), int(values[-1]))
    shown = drawn_as(most)
    for run, busy in zip(runs, uses, strict=True):
        pooled: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
        for name in sorted(busy, key=lambda name: (-int(busy[name][1][-1]), name)):
            times, values = busy[name]
            span = max(1, int(times[-1] - times[0]))
            waited = int(summed_over_machines(run, f"channel.{name}.queued_ns")[1][-1])
            sent = int(summed_over_machines(run, f"channel.{name}.bytes")[1][-1])
            use = (int(values[-1]) - int(values[0])) / span
            table.append(
                (run.label, name, round(use, 4), round(waited / 1e9, 4), round(waited / span, 4), sent)
            )
            if name in shown:
                pooled.setdefault(shown[name], []).append((times, values))
        for name, members in pooled.items():
            at = members[0][0]
            mean = np.mean([np.interp(at, times, values) for times, values in members], axis=0)
            times, values = thinned(at, mean)
            shares = np.diff(values) / np.maximum(1, np.diff(times))
            data += [
                {
                    "run": run.label,
                    "channel": name,
                    "s": round(time / 1e9, 3),
                    "use": round(min(1.0, share), 4),
                }
                for time, share in zip(times[1:].tolist(), shares.tolist(), strict=True)
            ]
    if not data:
        return NothingToDraw("channels", _TITLE, "no channel of the run ever had a job, or none was sampled")
    drawn = sorted(set(shown.values()), key=lambda name: (name == OTHER, name))
    chart = (
        alt.Chart()
        .mark_line(interpolate="step-before")
        .encode(
            x=time_axis("simulated time", data),
            y=alt.Y("use:Q", title="share of time in use", axis=alt.Axis(format="%")),
            color=alt.Color("channel:N", scale=colour_scale(drawn), sort=drawn, title=None),
            tooltip=["run:N", "channel:N", "s:Q", alt.Tooltip("use:Q", format=".1%")],
        )
    )
    headings = ("run", "channel", "use", "waiting, s", "jobs waiting, mean", "bytes")
    drawn_chart = side_by_side(chart, [run.label for run in runs], height=180)
    return Picture("channels", _TITLE, _DEFINITION, data, drawn_chart, Table(headings, tuple(table)))

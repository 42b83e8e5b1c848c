"""Sequences waiting, running and loading over time."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side
from kvcache_sim.report.time_series import summed_over_machines, thinned, time_axis

_NAMES = ("queue", "running", "loading")
_TITLE = "Sequences over time"
_DEFINITION = (
    "Sequences summed over the machines. Queue: waiting for admission; running: in the batch; loading: "
    "admitted, waiting for their KV."
)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return a line for each of queue, running and loading."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    for run in runs:
        for name in _NAMES:
            times, values = summed_over_machines(run, name)
            if not len(times):
                continue
            table.append((run.label, name, round(float(values.mean()), 2), int(values.max())))
            drawn = zip(*(column.tolist() for column in thinned(times, values)), strict=True)
            data += [
                {"run": run.label, "name": name, "s": round(time / 1e9, 3), "sequences": value}
                for time, value in drawn
            ]
    if not data:
        return NothingToDraw("queue", _TITLE, "the run holds no samples of its queue")
    chart = (
        alt.Chart()
        .mark_line(interpolate="step-after")
        .encode(
            x=time_axis("simulated time", data),
            y=alt.Y("sequences:Q", title="sequences"),
            color=alt.Color("name:N", scale=colour_scale(_NAMES), title=None),
            tooltip=["run:N", "name:N", "s:Q", "sequences:Q"],
        )
    )
    drawn_chart = side_by_side(chart, [run.label for run in runs], height=180)
    headings = ("run", "sequences", "mean", "most")
    return Picture("queue", _TITLE, _DEFINITION, data, drawn_chart, Table(headings, tuple(table)))

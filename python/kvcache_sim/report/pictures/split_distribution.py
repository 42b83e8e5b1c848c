"""A latency's cumulative distribution, split into classes of requests: shared by three pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.distributions import distribution, percentile
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side

_PERCENTILES = (50, 75, 90, 99)

#: Returns, of a run: milliseconds, and each value's class as an index into the names (−1: left out).
Split = Callable[[FinishedRun], tuple[NDArray[Any], NDArray[Any]]]


def draw_split(
    heading: tuple[str, str, str], runs: Sequence[FinishedRun], names: Sequence[str], split: Split
) -> Picture | NothingToDraw:
    """Return the distribution picture of ``heading`` (kind, title, definition) with a curve a class."""
    import altair as alt

    kind, title, definition = heading
    data: list[dict[str, Value]] = []
    rows: list[tuple[Value, ...]] = []
    for run in runs:
        values_ms, classes = split(run)
        for index, name in enumerate(names):
            chosen = values_ms[classes == index]
            for value, share in distribution(np.maximum(chosen, 0.001)):
                data.append(
                    {"run": run.label, "class": name, "ms": round(value, 4), "share": round(share, 5)}
                )
            figures = [percentile(chosen, p) for p in _PERCENTILES]
            rounded = [None if figure is None else round(figure, 3) for figure in figures]
            rows.append((run.label, name, len(chosen), *rounded))
    if not data:
        return NothingToDraw(kind, title, "no request finished")
    drawn = [name for name in names if any(row["class"] == name for row in data)]
    chart = (
        alt.Chart()
        .mark_line(interpolate="step-after", clip=True)
        .encode(
            x=alt.X("ms:Q", scale=alt.Scale(type="log"), title="ms (log scale)"),
            y=alt.Y("share:Q", title="share of requests", axis=alt.Axis(format="%")),
            color=alt.Color("class:N", scale=colour_scale(drawn), sort=drawn, title=None),
            tooltip=["run:N", "class:N", "ms:Q", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    headings = ("run", "class", "requests", *(f"p{p}, ms" for p in _PERCENTILES))
    labels = [run.label for run in runs]
    return Picture(kind, title, definition, data, side_by_side(chart, labels), Table(headings, tuple(rows)))

"""The machines that served requests with a common prefix, as the router chose them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side

_TITLE = "Machine × prefix"
_DEFINITION = (
    "Requests by the machine that served them and the prefix they share. A prefix is its leading blocks, at "
    "the depth where no prefix holds over a third of the traffic. The {most} most frequent prefixes; a "
    "prefix spread over machines is computed once on each."
)
_MOST = 25
_DEEPEST = 64


def prefix_groups(run: FinishedRun) -> NDArray[np.int64] | None:
    """Return a group number for each finished request, by the block at the depth where the traffic parts."""
    if run.trace is None or not len(run.finished["request"]):
        return None
    request = run.finished["request"].astype(np.int64)
    starts = run.trace.id_offsets[request]
    counts = run.trace.id_offsets[request + 1] - starts
    group = np.full(len(request), -1, np.int64)
    for depth in range(_DEEPEST):
        deep = counts > depth
        if not deep.any():
            break
        group[deep] = run.trace.block_ids[starts[deep] + depth]
        _, sizes = np.unique(group, return_counts=True)
        if sizes.max() * 3 <= len(group):
            break
    return group


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return a heat map of counts; one machine is no map."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    for run in runs:
        groups = prefix_groups(run)
        machine = run.finished["machine"]
        if groups is None or len(np.unique(machine)) < 2:
            continue
        names, sizes = np.unique(groups, return_counts=True)
        for rank, chosen in enumerate(names[np.argsort(-sizes, kind="stable")][:_MOST].tolist(), 1):
            served = np.bincount(machine[groups == chosen], minlength=int(machine.max()) + 1).tolist()
            prefix = f"{rank:02d}"
            data += [
                {"run": run.label, "prefix": prefix, "machine": index, "requests": count}
                for index, count in enumerate(served)
            ]
            table.append((run.label, prefix, sum(served), sum(c > 0 for c in served), max(served)))
    if not data:
        reason = "one machine served everything, or the trace is not where it was"
        return NothingToDraw("machines", _TITLE, reason)
    chart = (
        alt.Chart()
        .mark_rect()
        .encode(
            x=alt.X(
                "prefix:O", title="prefix, most frequent first", axis=alt.Axis(labels=False, ticks=False)
            ),
            y=alt.Y("machine:O", title="machine"),
            color=alt.Color("requests:Q", scale=alt.Scale(scheme="viridis"), title="requests"),
            tooltip=["run:N", "prefix:O", "machine:O", "requests:Q"],
        )
    )
    shown = [run.label for run in runs if any(row["run"] == run.label for row in data)]
    headings = ("run", "prefix", "requests", "machines that served it", "requests on its busiest machine")
    drawn = side_by_side(chart, shown, height=200)
    definition = _DEFINITION.format(most=_MOST)
    return Picture("machines", _TITLE, definition, data, drawn, Table(headings, tuple(table)))

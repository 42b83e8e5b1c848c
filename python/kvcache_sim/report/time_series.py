"""Samples over time, thinned to what a picture can show, and its series: the largest, the rest as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.colours import OTHER
from kvcache_sim.report.finished import FinishedRun, number_column, text_column
from kvcache_sim.report.picture import Value

#: Most colors that a reader can distinguish at a glance.
MOST_SERIES = 6


def drawn_as(amounts: Mapping[str, float]) -> dict[str, str]:
    """Return the drawn name of each series, in the order given; empty series are left out.

    Up to ``MOST_SERIES`` keep their names. Of more, the largest keep theirs, and the rest are ``other``,
    which counts as one of them.
    """
    present = {name: amount for name, amount in amounts.items() if amount > 0}
    if len(present) <= MOST_SERIES:
        return {name: name for name in present}
    ranked = sorted(present, key=lambda name: -present[name])
    named = set(ranked[: MOST_SERIES - 1])
    return {name: name if name in named else OTHER for name in present}


_LEAST_IN_HOURS_S = 7200
_MOST_TICKS = 8
#: Points of a drawn series.
MAX_POINTS = 240


def series_names(run: FinishedRun) -> tuple[str, ...]:
    """Return the names sampled in a run."""
    return text_column(run.series["name"]).words


def summed_over_machines(run: FinishedRun, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sampling times in ns and one name's values there, summed over the machines."""
    names = text_column(run.series["name"])
    if name not in names.words:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    chosen = names.codes == names.words.index(name)
    time_ns, value = number_column(run.series["time_ns"])[chosen], number_column(run.series["value"])[chosen]
    times, inverse = np.unique(time_ns, return_inverse=True)
    totals = np.zeros(len(times), np.int64)
    np.add.at(totals, inverse, value)
    return times, totals


def time_axis(title: str, data: Sequence[Mapping[str, Value]]) -> Any:
    """Return the axis of the field ``s`` of some rows: in hours from two hours on, else in seconds."""
    import altair as alt

    times = [float(row["s"] or 0) for row in data]
    first, last = min(times), max(times)
    if last < _LEAST_IN_HOURS_S:
        return alt.X("s:Q", title=f"{title}, s")
    steps = (0.5, 1, 2, 3, 6, *(12 * 2**n for n in range(40)))
    step_s = 3600 * next((step for step in steps if last - first <= 3600 * step * _MOST_TICKS), steps[-1])
    values = [step_s * n for n in range(math.ceil(first / step_s), math.floor(last / step_s) + 1)]
    axis = alt.Axis(values=values, labelExpr="format(datum.value / 3600, ',~r')")
    return alt.X("s:Q", title=f"{title}, h", axis=axis)


def thinned(times: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return at most ``MAX_POINTS`` samples, evenly chosen, the last one always among them."""
    if len(times) <= MAX_POINTS:
        return times, values
    chosen = np.unique(np.linspace(0, len(times) - 1, MAX_POINTS).astype(int))
    return times[chosen], values[chosen]

"""Each request's times, kept during a run, and the intervals of the main figures over requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.resampling import drawn_blocks, interval

#: Fewest finished requests for an interval.
LEAST_REQUESTS = 10
_COLUMNS = ("request", "arrival_ns", "first_token_ns", "finish_ns", "output_tokens")
_FINISHED = STATUSES.index("finished")

Interval = tuple[float, float]


class RequestTimes:
    """The times of finished requests, added in batches. Cost: 40 bytes a request."""

    def __init__(self) -> None:
        self._parts: list[dict[str, NDArray[Any]]] = []

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Keep some rows of ``requests``."""
        done = rows["status"] == _FINISHED
        self._parts.append({name: rows[name][done] for name in _COLUMNS})

    def chosen(
        self, measured: Callable[[Mapping[str, NDArray[Any]]], NDArray[np.bool_]]
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of the requests that ``measured`` selects, in order of arrival."""
        rows = {name: np.concatenate([part[name] for part in self._parts]) for name in _COLUMNS}
        order = np.lexsort((rows["request"], rows["arrival_ns"]))
        order = order[measured(rows)[order]]
        return {name: column[order] for name, column in rows.items()}


def request_intervals(rows: Mapping[str, NDArray[Any]]) -> dict[str, Interval]:
    """Return the 95 % interval of each figure over requests in order of arrival, by figure.

    Times in ms, ``output_tokens_per_s`` in 1/s; none for fewer than ``LEAST_REQUESTS``. The rate is over
    requests in order of their last token, each with the time since the one before, so its draws resample the
    time too. Cost: 300 draws of the TTFT.
    """
    count = len(rows["arrival_ns"])
    if count < LEAST_REQUESTS:
        return {}
    ttft = (rows["first_token_ns"] - rows["arrival_ns"]) / 1e6
    later = rows["output_tokens"] - 1
    each = np.rint((rows["finish_ns"] - rows["first_token_ns"]) / np.maximum(later, 1)) / 1e6
    one = np.ones(count)
    several = (later > 0).astype(float)
    found = {
        "ttft_mean": _of_ratio(ttft, one),
        **_percentiles(ttft),
        "tpot_mean": _of_ratio(each * several, several),
        "e2e_mean": _of_ratio((rows["finish_ns"] - rows["arrival_ns"]) / 1e6, one),
        "output_tokens_per_s": _rate(rows),
    }
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _percentiles(ttft: NDArray[np.float64]) -> dict[str, Interval]:
    count = len(ttft)
    starts, length = drawn_blocks(count)
    within = np.arange(length)
    around = np.concatenate([ttft, ttft[:length]])
    ranks = [(count - 1) * percent / 100 for percent in (50, 99)]
    below = [int(rank) for rank in ranks]
    indices = [index for rank in below for index in (rank, min(rank + 1, count - 1))]
    drawn = np.empty((len(starts), 2))
    for number, firsts in enumerate(starts):
        values = around[(firsts[:, None] + within).ravel()[:count]]
        values.partition(indices)
        low, high = values[indices[::2]], values[indices[1::2]]
        drawn[number] = low + (high - low) * np.subtract(ranks, below)
    return {"ttft_p50": interval(drawn[:, 0]), "ttft_p99": interval(drawn[:, 1])}


def _rate(rows: Mapping[str, NDArray[Any]]) -> Interval | None:
    order = np.argsort(rows["finish_ns"], kind="stable")
    finish_ns = rows["finish_ns"][order]
    seconds = np.diff(finish_ns, prepend=rows["arrival_ns"].min()) / 1e9
    return _of_ratio(rows["output_tokens"][order].astype(float), seconds)


def _of_ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> Interval | None:
    """Return the interval of Σ above / Σ below over the draws; None where a draw has nothing below."""
    sums, weights = (_drawn_sums(values) for values in (above, below))
    return None if (weights <= 0).any() else interval(sums / weights)


def _drawn_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of values over each draw, from sums up to each index."""
    count = len(values)
    starts, length = drawn_blocks(count)
    upto = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:length]]))])
    ends = starts + length
    ends[:, -1] = starts[:, -1] + count - length * (starts.shape[1] - 1)
    return np.asarray((upto[ends] - upto[starts]).sum(axis=1), np.float64)

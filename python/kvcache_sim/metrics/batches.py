"""Main figures of a run without each batch of its time in turn, from which intervals of differences follow.

The jackknife over batches (Tukey 1958; batches as in Law, Simulation Modeling and Analysis, batch means):
requests near each other in time share queues and caches, so a whole batch is left out, not a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import STATUSES

#: The key of a summary and of a row with these figures; no file of tables has it.
BATCHES = "batches"
#: Batches of a run, and of one with fewer than a thousand requests.
_COUNT, _FEWER = 20, 10
_MANY, _LEAST_REQUESTS = 1000, 50
_FINISHED = STATUSES.index("finished")

Column = NDArray[Any]


def batch_count(requests: int) -> int:
    """Return the number of batches of so many finished requests; 0 for fewer than 50."""
    if requests < _LEAST_REQUESTS:
        return 0
    return _COUNT if requests >= _MANY else _FEWER


def batch_figures(rows: Mapping[str, Column]) -> dict[str, list[float]]:
    """Return each main figure of finished requests without each batch in turn, by its name in the summary.

    Batches are equally many requests in order of arrival; of the throughput, equal times. Empty for fewer
    than 50 finished requests. Cost: a pass over the requests for each batch and figure.
    """
    chosen = np.flatnonzero(rows["status"] == _FINISHED)
    count = batch_count(len(chosen))
    if not count:
        return {}
    order = chosen[np.lexsort((rows["request"][chosen], rows["arrival_ns"][chosen]))]
    arrival, first, finish, inputs, outputs, cached = (
        rows[name][order].astype(float)
        for name in (
            "arrival_ns",
            "first_token_ns",
            "finish_ns",
            "input_tokens",
            "output_tokens",
            "cached_prefix_length_used",
        )
    )
    batch = np.arange(len(order)) * count // len(order)
    ttft, e2e, later = (first - arrival) / 1e6, (finish - arrival) / 1e6, outputs > 1
    tpot = (finish - first)[later] / 1e6 / (outputs[later] - 1)
    found: dict[str, list[float]] = {
        f"latency.ttft.p{percent}": [float(np.percentile(ttft[batch != b], percent)) for b in range(count)]
        for percent in (50, 99)
    }
    means = {"latency.ttft.avg": (ttft, batch), "latency.e2e.avg": (e2e, batch)}
    if later.any():
        means["latency.tpot.avg"] = tpot, batch[later]
    for name, (values, weights) in means.items():
        found[name] = _ratios(values, np.ones(len(values)), weights, count)
    if inputs.sum():
        found["cache.token_hit_rate"] = _ratios(cached, inputs, batch, count)
    span = finish.max() - arrival.min()
    window = np.minimum((finish - arrival.min()) * count // max(span, 1.0), count - 1).astype(int)
    made = np.bincount(window, outputs, count)
    rates = (made.sum() - made) / (max(span, 1.0) / 1e9 * (1 - 1 / count))
    return {**found, "throughput.output_tokens_per_s": rates.tolist()}


def _ratios(numerator: Column, denominator: Column, batch: Column, count: int) -> list[float]:
    """Return the ratio of two sums without each batch in turn; 0 where nothing is left."""
    above, below = (np.bincount(batch, column, count) for column in (numerator, denominator))
    left = below.sum() - below
    ratios = np.divide(above.sum() - above, left, out=np.zeros(count), where=left != 0)
    return [float(ratio) for ratio in ratios]

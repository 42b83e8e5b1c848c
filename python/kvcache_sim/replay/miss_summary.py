"""Misses by cause: the summary of a replay, and its table of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.trace import Trace

#: Causes in the order of the columns that replays return, with what they mean.
MISS_CAUSES: dict[str, str] = {
    "never_seen": "no prompt showed the block before, and the prompt is new, or goes on where one ended",
    "diverged": "no prompt showed it before, and others went on differently after the same blocks",
    "evicted": "it was in the cache and was evicted, or lies behind a block that was",
    "shorter": "the end of a prompt that fills no block which may hit: the last token is always computed",
    "not_admitted": "a prompt showed it before, but the cache did not take it",
}


def miss_summary(
    trace: Trace, policy: str, tokens: NDArray[np.int64], evicted: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the missed tokens by cause, and how long before each missed block had been evicted.

    ``tokens`` has a row a request and a column a cause; ``evicted`` rows of (request, the request whose
    demand evicted, blocks). Ages are quantiles over blocks, in requests and in the trace's own time.
    """
    totals = tokens.sum(axis=0).tolist()
    summary: dict[str, Any] = {
        f"{cause}_tokens": total for cause, total in zip(MISS_CAUSES, totals, strict=True)
    }
    summary["missed_tokens"] = sum(totals)
    if len(evicted):
        request, by, blocks = evicted.T
        age_ns = trace.arrival_ns[request] - trace.arrival_ns[by]
        summary["evicted_by"] = policy
        summary["evicted_before_requests"] = _quantiles(request - by, blocks)
        summary["evicted_before_ns"] = _quantiles(age_ns, blocks)
    return summary


def _quantiles(values: NDArray[np.int64], weights: NDArray[np.int64]) -> dict[str, int]:
    """Return nearest-rank quantiles of weighted integers."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    ranks = {"p50": -(-reached[-1] // 2), "p90": -(-9 * reached[-1] // 10), "max": reached[-1]}
    return {name: int(values[order][np.searchsorted(reached, rank)]) for name, rank in ranks.items()}


def requests_table(
    trace: Trace, hits: NDArray[np.int64], tokens: NDArray[np.int64]
) -> dict[str, Sequence[int]]:
    """Return columns, a row a request: prompt, hit (-1: rejected) and missed tokens by cause."""
    columns: dict[str, Sequence[int]] = {
        "request": list(range(len(trace))),
        "input_tokens": trace.input_tokens.tolist(),
        "hit_tokens": hits.tolist(),
    }
    for index, cause in enumerate(MISS_CAUSES):
        columns[f"{cause}_tokens"] = tokens[:, index].tolist()
    return columns

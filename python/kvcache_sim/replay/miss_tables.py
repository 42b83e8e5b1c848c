"""The misses of a replay by cause: its summary, and its table of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.replay.miss_causes import MISS_CAUSES, reported_by
from kvcache_sim.workload.trace import Trace

#: Column of the tokens by cause → the name under which a replay reports it.
_COLUMNS = {MISS_CAUSES.index(cause): f"{cause.name}_tokens" for cause in reported_by("replay")}
_NAMES = [cause.name for cause in MISS_CAUSES]
_NEW = [_NAMES.index(name) for name in ("never_seen", "diverged")]
_SHORTER, _PARTIAL = _NAMES.index("shorter"), _NAMES.index("partial_block")


def with_partial_blocks(tokens: NDArray[np.int64], trace: Trace) -> NDArray[np.int64]:
    """Return missed tokens by cause: what earlier prompts have of a new block is a partial block's.

    Tokens without an earlier prompt lie behind all others that may hit, so the first of them is known.
    """
    if not len(trace.shown_tokens):
        return tokens
    tokens = tokens.copy()
    left = trace.shown_tokens - trace.input_tokens + tokens[:, [*_NEW, _SHORTER]].sum(axis=1)
    for column in _NEW:
        moved = np.clip(left, 0, tokens[:, column])
        tokens[:, column] -= moved
        tokens[:, _PARTIAL] += moved
        left = left - moved
    return tokens


def miss_summary(
    trace: Trace, policy: str, tokens: NDArray[np.int64], evicted: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the missed tokens by cause, and the time since the eviction of each missed block.

    ``tokens`` has a row a request and a column a cause (``MISS_CAUSES``); ``evicted`` rows of (request, the
    request whose demand evicted, blocks). Ages are quantiles over blocks, in requests and in the trace's own
    time.
    """
    totals = tokens.sum(axis=0).tolist()
    summary: dict[str, Any] = {name: totals[column] for column, name in _COLUMNS.items()}
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
    return columns | {name: tokens[:, column].tolist() for column, name in _COLUMNS.items()}

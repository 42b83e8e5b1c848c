"""What a trace is like: lengths, arrivals, sharing, reuse, hit ceilings, working set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import reuse_distances
from kvcache_sim.workload.toolbox.unbounded import unbounded_hits
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace

#: Windows into which the working set over time is cut.
WINDOWS = 20


def describe(values: NDArray[Any]) -> dict[str, float]:
    """Return avg, min, max, p99, p90, p75, p50, std in AIPerf's order; percentiles by nearest rank."""
    if not len(values):
        return {}
    ordered = np.sort(values)
    ranks = {p: ordered[max(0, -(-p * len(ordered) // 100) - 1)].item() for p in (99, 90, 75, 50)}
    return {
        "avg": float(np.mean(ordered)),
        "min": ordered[0].item(),
        "max": ordered[-1].item(),
        **{f"p{p}": value for p, value in ranks.items()},
        "std": float(np.std(ordered)),
    }


def trace_stats(trace: Trace) -> dict[str, Any]:
    """Return the statistics of a trace as one tree of plain values (see docs/traces.md for each).

    Cost: a few passes over the ids and n log n for the reuse distances; 0.1 s for 288,500 references.
    """
    hits = unbounded_hits(trace)
    distance = reuse_distances(np.ascontiguousarray(trace.block_ids))
    first = trace.block_ids[trace.id_offsets[:-1][np.diff(trace.id_offsets) > 0]]
    return {
        "source": trace.source,
        "sha256": trace.sha256,
        "requests": len(trace),
        "sessions": len(trace.session_names),
        "turns_per_session": describe(np.bincount(trace.session[trace.session != NO_SESSION])),
        "closed_loop_requests": int(np.count_nonzero(trace.think_ns != OPEN_LOOP)),
        "tokens": {"input": int(trace.input_tokens.sum()), "output": int(trace.output_tokens.sum())},
        "input_tokens": describe(trace.input_tokens),
        "output_tokens": describe(trace.output_tokens),
        "arrivals": _arrivals(trace),
        "blocks": {
            "block_size": trace.block_size,
            "references": len(trace.block_ids),
            "distinct": trace.distinct_ids,
            "repeats": len(trace.block_ids) - trace.distinct_ids,
            "prefix_groups": len(np.unique(first)),
        },
        "unbounded_hit_rate": {
            "blocks": hits.block_rate,
            "tokens": hits.token_rate,
            "mean_over_requests": hits.request_mean_rate,
        },
        "reuse_distance_blocks": describe(distance[distance >= 0]),
        "reuse_time_s": describe(_reuse_times_ns(trace) / 1e9),
        "working_set": _working_set(trace),
    }


def _arrivals(trace: Trace) -> dict[str, Any]:
    open_loop = np.sort(trace.arrival_ns[trace.think_ns == OPEN_LOOP])
    if not len(open_loop):
        return {"distinct_times": 0}
    gaps = np.diff(open_loop)
    span_ns = int(open_loop[-1] - open_loop[0])
    seconds = np.bincount((open_loop - open_loop[0]) // 10**9) if span_ns < 10**16 else np.empty(0, np.int64)
    return {
        "distinct_times": len(np.unique(open_loop)),
        "span_s": span_ns / 1e9,
        "requests_per_s": (len(open_loop) - 1) / (span_ns / 1e9) if span_ns else None,
        "gap_s": describe(gaps / 1e9),
        # 1 for Poisson arrivals: standard deviation over mean of the gaps.
        "gap_variation": float(np.std(gaps) / np.mean(gaps)) if span_ns else None,
        # 1 for Poisson arrivals: variance over mean of the requests in each second.
        "dispersion_per_s": float(np.var(seconds) / np.mean(seconds)) if len(seconds) > 1 else None,
    }


def _reuse_times_ns(trace: Trace) -> NDArray[np.int64]:
    """Return the time between each reference of a block and the one before it."""
    order = np.argsort(trace.block_ids, kind="stable")
    ids = trace.block_ids[order]
    at = np.repeat(trace.arrival_ns, np.diff(trace.id_offsets))[order]
    gaps: NDArray[np.int64] = np.diff(at)[ids[1:] == ids[:-1]]
    return gaps


def _working_set(trace: Trace) -> list[dict[str, Any]]:
    """Return, for each of equal windows of time, the distinct blocks named in it and up to its end."""
    if not len(trace.block_ids):
        return []
    start, end = int(trace.arrival_ns.min()), int(trace.arrival_ns.max())
    width = max(1, -(-(end - start + 1) // WINDOWS))
    window = np.repeat((trace.arrival_ns - start) // width, np.diff(trace.id_offsets))
    pairs = np.sort(window * trace.distinct_ids + trace.block_ids)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    within = np.bincount(pairs // trace.distinct_ids, minlength=WINDOWS)
    first = np.full(trace.distinct_ids, WINDOWS)
    first[(pairs % trace.distinct_ids)[::-1]] = (pairs // trace.distinct_ids)[::-1]
    seen = np.cumsum(np.bincount(first, minlength=WINDOWS)[:WINDOWS])
    return [
        {"until_s": (start + (k + 1) * width) / 1e9, "blocks": int(within[k]), "seen": int(seen[k])}
        for k in range(WINDOWS)
    ]

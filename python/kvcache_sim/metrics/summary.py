"""``summary.json``: the numbers of a finished run under names that stay stable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.channel_use import summarize_channels
from kvcache_sim.metrics.chosen import ChosenRows
from kvcache_sim.metrics.columns import FETCH_PARTS, STATUSES, TTFT_PARTS
from kvcache_sim.metrics.figures import DEFINITIONS
from kvcache_sim.metrics.handover_summary import summarize_handovers
from kvcache_sim.metrics.percentiles import describe, describe_counted
from kvcache_sim.metrics.prefix_cache import summarize_prefix_cache, with_left
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.session_survival import session_survival
from kvcache_sim.metrics.tier_use import summarize_tiers
from kvcache_sim.tiers import PLACES, TIERS
from kvcache_sim.units import NS_PER_S


def summarize(run: Run, block_size_tokens: int) -> dict[str, Any]:
    """Return the summary of a run: counts, shares in [0, 1], latencies in ms; None is "never measured".

    Hits are counted over first admissions; latencies over finished requests. ``wall`` is added by whoever
    measured it.
    """
    columns = {name: column for name, column in run.requests.items() if isinstance(column, np.ndarray)}
    finished = columns["status"] == STATUSES.index("finished")
    done = ChosenRows(columns, finished)
    inputs, cached = done["input_tokens"], done["cached_prefix_length_used"]
    arrived, count = len(finished), int(finished.sum())
    block_refs = int((inputs // block_size_tokens).sum())
    hit_blocks = int((cached // block_size_tokens).sum())
    seconds = _makespan_ns(columns, done) / NS_PER_S
    ttft = done["first_token_ns"] - done["arrival_ns"]
    hit_tokens = {tier: int(done[f"cached_{tier}_tokens"].sum()) for tier in PLACES}
    return {
        "requests": {
            "arrived": arrived,
            "finished": count,
            "rejected": arrived - count,
            "preemptions": int(columns["preemptions"].sum()),
        },
        "tokens": {
            "input": int(inputs.sum()),
            "output": int(done["output_tokens"].sum()),
            "cached": int(cached.sum()),
            "prefilled": int(done["num_tokens_actually_prefilled"].sum()),
            "recomputed": int(done["recomputed_tokens"].sum()),
        },
        "cache": {
            "block_refs": block_refs,
            "hit_blocks": hit_blocks,
            "token_hit_rate": _share(int(cached.sum()), int(inputs.sum())),
            "block_hit_rate": _share(hit_blocks, block_refs),
            "request_hit_rate": math.fsum((cached / inputs).tolist()) / count if count else None,
            "hit_tokens": hit_tokens,
            "evictions": {tier: run.counters[f"evictions.{tier}"] for tier in TIERS},
            "dropped_blocks": run.counters["dropped_blocks"],
            "merged_blocks": run.counters.get("merged_blocks", 0),
        },
        "latency": {
            "ttft": describe(ttft),
            "tpot": describe(_tpot_ns(done)),
            "itl": describe_counted(run.itl_ns),
            "e2e": describe(done["finish_ns"] - done["arrival_ns"]),
            "queue": describe(done["queue_ns"]),
            "ttft_parts": {part: describe(done[f"{part}_ns"]) for part in TTFT_PARTS},
            "fetch_parts": {part: describe(done[f"{part}_ns"]) for part in FETCH_PARTS},
        },
        "throughput": {
            "requests_per_s": count / seconds if seconds else None,
            "output_tokens_per_s": int(done["output_tokens"].sum()) / seconds if seconds else None,
        },
        "prefix_cache": with_left(
            summarize_prefix_cache(done, run.events, block_size_tokens), run.left_outcomes
        ),
        "session_survival": session_survival(done, block_size_tokens),
        "tiers": summarize_tiers(run.tiers, hit_tokens, run.end_ns),
        "channels": summarize_channels(run.channels, run.end_ns),
        "handover": summarize_handovers(done, run.counters),
        "machines": _machines(done, run.counters),
        #: Errors of the router's own index, over all machines and decisions; None where it saw the truth.
        "router": {
            name: run.counters.get(f"router.{name}") for name in ("false_hit_blocks", "missed_hit_blocks")
        },
        "digest": {"events": run.digest_events, "results": run.digest_results},
        "simulated_s": run.end_ns / NS_PER_S,
        "engine": {"events": run.events_processed},
        "definitions": DEFINITIONS,
    }


Columns = Mapping[str, NDArray[Any]]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _makespan_ns(columns: Columns, done: Columns) -> int:
    """Return the time from the first arrival to the last finished token."""
    if not len(done["finish_ns"]):
        return 0
    return int(done["finish_ns"].max()) - int(columns["arrival_ns"].min())


def _tpot_ns(done: Columns) -> NDArray[np.int64]:
    """Return the mean time of a token after the first, of requests with two output tokens or more."""
    later = done["output_tokens"] - 1
    long = later > 0
    spans = (done["finish_ns"] - done["first_token_ns"])[long]
    mean: NDArray[np.int64] = np.rint(spans / later[long]).astype(np.int64)
    return mean


def _machines(done: Columns, counters: Mapping[str, int]) -> dict[str, Any]:
    """Return how evenly requests were routed: per machine, largest over mean, and Jain's index (1984).

    Both figures cover the machines that requests are routed to; machines that only decode are left out.
    """
    if not len(done["machine"]):
        return {"requests": [], "max_over_mean": None, "jain": None}
    loads = np.bincount(done["machine"], minlength=counters.get("machines", 0)).astype(np.int64)
    routed = [load for m, load in enumerate(loads.tolist()) if counters.get(f"machine.{m}.routed", 1)]
    total, squares = sum(routed), sum(load * load for load in routed)
    return {
        "requests": loads.tolist(),
        "max_over_mean": max(routed) * len(routed) / total,
        "jain": total * total / (len(routed) * squares),
    }

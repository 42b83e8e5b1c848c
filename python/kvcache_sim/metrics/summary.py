"""``summary.json``: the numbers of a finished run under names that stay stable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcache_sim.base.tiers import KV_SOURCES, TIERS
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.metrics.cache_groups import summarize_groups
from kvcache_sim.metrics.channel_use import summarize_channels
from kvcache_sim.metrics.figure import share_of
from kvcache_sim.metrics.figures import DEFINITIONS
from kvcache_sim.metrics.machine_loads import summarize_loads
from kvcache_sim.metrics.optional_groups import (
    summarize_fleet,
    summarize_plugins,
    summarize_pool,
    summarize_retention,
    summarize_speculation,
)
from kvcache_sim.metrics.parts import GROUP_ROWS, arrays_of
from kvcache_sim.metrics.percentiles import describe_counted
from kvcache_sim.metrics.prefix_cache import with_left
from kvcache_sim.metrics.request_totals import RequestTotals
from kvcache_sim.metrics.run import ColumnData, Run
from kvcache_sim.metrics.tier_use import summarize_tiers


def summarize(run: Run, block_size_tokens: int, totals: RequestTotals | None = None) -> dict[str, Any]:
    """Return the summary of a run: counts, shares in [0, 1], latencies in ms; None is "never measured".

    ``totals`` are those of its rows if they were streamed. ``wall`` is added by the caller that measured it.
    """
    requests = totals or totals_of(run.requests, block_size_tokens)
    sums, hit_tokens = requests.sums, {source: requests.hit_tokens[source] for source in KV_SOURCES}
    seconds = requests.makespan_ns / NS_PER_S
    latency = requests.latencies()
    counted_ns = run.end_ns if run.counted_ns is None else run.counted_ns
    return {
        "requests": {
            "arrived": requests.arrived,
            "finished": requests.finished,
            "rejected": requests.rejected,
            "rejected_beyond_context": requests.rejected_beyond_context,
            "turned_away": requests.turned_away,
            "aborted": requests.aborted,
            "failed": requests.failed,
            "preemptions": sums["preemptions"],
        },
        "tokens": {name: sums[name] for name in ("input", "output", "cached", "prefilled", "recomputed")},
        "cache": {
            "block_refs": sums["block_refs"],
            "hit_blocks": sums["hit_blocks"],
            "token_hit_rate": share_of(sums["cached"], sums["input"]),
            "upper_bound_token_hit_rate": requests.upper_bound_token_hit_rate,
            "block_hit_rate": share_of(sums["hit_blocks"], sums["block_refs"]),
            "request_hit_rate": requests.request_hit_rate,
            "hit_tokens": hit_tokens,
            "evictions": {tier: run.counters[f"evictions.{tier}"] for tier in TIERS},
            "dropped_blocks": run.counters["dropped_blocks"],
            "merged_blocks": run.counters.get("merged_blocks", 0),
        },
        "latency": {
            "ttft": latency["ttft"],
            "tpot": latency["tpot"],
            "itl": describe_counted(run.itl_ns),
            **{name: latency[name] for name in ("e2e", "queue", "ttft_parts", "fetch_parts")},
        },
        "throughput": {
            "requests_per_s": requests.finished / seconds if seconds else None,
            "output_tokens_per_s": sums["output"] / seconds if seconds else None,
        },
        **(requests.attainment.figures(requests.makespan_ns) if requests.attainment is not None else {}),
        **(requests.jobs.figures() if requests.jobs is not None else {}),
        **summarize_groups(run.counters),
        **summarize_speculation(run.counters),
        "prefix_cache": with_left(requests.prefix_cache.figures(run.events), run.left_outcomes),
        "session_survival": requests.sessions.rows(),
        "tiers": summarize_tiers(run.tiers, hit_tokens, counted_ns),
        "channels": summarize_channels(run.channels, counted_ns),
        "handover": requests.handovers.figures(run.counters),
        **summarize_pool(run.counters),
        **summarize_retention(run.counters),
        **summarize_fleet(run.counters, run.fleet_changes),
        **summarize_plugins(run.plugins),
        "machines": summarize_loads(requests.loads, run.counters),
        #: Errors of the router's own index, over all machines and decisions; None if it saw the truth.
        "router": {
            name: run.counters.get(f"router.{name}") for name in ("false_hit_blocks", "missed_hit_blocks")
        },
        "digest": {"events": run.digest_events, "results": run.digest_results},
        "simulated_s": run.end_ns / NS_PER_S,
        "engine": run.engine._asdict(),
        "definitions": DEFINITIONS,
    }


def totals_of(requests: Mapping[str, ColumnData], block_size_tokens: int) -> RequestTotals:
    """Return the totals of a whole table of requests."""
    totals = RequestTotals(block_size_tokens)
    columns = arrays_of(requests)
    for start in range(0, len(columns["status"]), GROUP_ROWS):
        totals.add({name: column[start : start + GROUP_ROWS] for name, column in columns.items()})
    return totals

"""Causes of missed prompt tokens in a timed run, computed from its requests table and its trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.cache.settings import CacheSettings, PrefixViewSettings
from kvcache_sim.metrics.cache_groups import junctions_of
from kvcache_sim.metrics.columns import MISS_COLUMNS, STATUSES, miss_column
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.replay.miss_causes import MISS_CAUSES, reported_by
from kvcache_sim.replay.miss_tables import with_partial_blocks
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import Trace

FIGURES = (
    Figure("misses.tokens", "tokens", "prompt tokens missed by finished requests; the causes sum to it"),
    Figure("misses.<cause>", "tokens", "of these, tokens missed for the cause (reference/miss-causes)"),
    Figure("misses.evicted_by", "", "the eviction policies that evicted, by tier"),
    Figure("misses.evicted_idle_ms.requests", "", "requests that missed something evicted"),
    Figure(
        "misses.evicted_idle_ms.avg",
        "ms",
        "mean over them of the longest time since the last use of a block they missed",
    ),
    Figure("misses.evicted_idle_ms.max", "ms", "the longest of these times"),
)

#: Parts of TTFT between the first admission and the first token.
_AFTER_ADMISSION = tuple(part.column for part in ROWS if part.after_admission)


def keeps_all_blocks(cache: CacheSettings) -> bool:
    """Return True if the cache admits every block and keeps it reachable for lookups."""
    return (
        cache.enabled
        and cache.admission == "all"
        and cache.prefix_view == PrefixViewSettings()
        and not cache.discard_on_finish
    )


def keeps_no_blocks(cache: CacheSettings) -> bool:
    """Return True if no block outlives the request that computed it, on any machine."""
    return not cache.enabled or cache.discard_on_finish


def miss_causes(
    requests: Mapping[str, Any],
    trace: Trace,
    block_size_tokens: int,
    kept: bool = True,
    junctions: Mapping[str, Any] | None = None,
    keeps_none: bool = False,
) -> dict[str, NDArray[np.int64]]:
    """Return the columns of ``MISS_COLUMNS``; per finished request the causes sum to prompt − cached tokens.

    A token belongs to its id (a block of the trace) and its prefix. ``kept`` is False if the cache does not
    keep all blocks (``keeps_all_blocks``), or nothing was evicted: tokens that were ready here and are missed
    were *not admitted*; with ``keeps_none`` those computed elsewhere too.
    ``junctions`` are the columns of ``JUNCTION_COLUMNS``. Rejected requests have
    zeros. Cost: one native call, linear in the ids of the trace.
    """

    def column(name: str) -> NDArray[np.int64]:
        return np.ascontiguousarray(requests[name], np.int64)

    admitted_ns = column("first_token_ns") - sum(column(name) for name in _AFTER_ADMISSION)
    tokens, evicted_idle_ns = _core.timed_miss_tokens(
        trace.id_offsets,
        trace.block_ids,
        trace.block_size,
        block_size_tokens,
        continuations(trace),
        np.asarray(requests["status"]) == STATUSES.index("finished"),
        column("machine"),
        column("decode_machine"),
        column("input_tokens"),
        column("output_tokens"),
        column("cached_prefix_length_used"),
        admitted_ns,
        column("first_token_ns"),
        column("finish_ns"),
        *junctions_of(requests, junctions),
        kept,
    )
    tokens = with_partial_blocks(tokens, trace)
    columns = {miss_column(cause): tokens[:, MISS_CAUSES.index(cause)] for cause in reported_by("timed")}
    columns = {name: np.ascontiguousarray(values) for name, values in columns.items()}
    if keeps_none:
        elsewhere = columns["miss_elsewhere_tokens"]
        columns["miss_not_admitted_tokens"] = columns["miss_not_admitted_tokens"] + elsewhere
        columns["miss_elsewhere_tokens"] = np.zeros_like(elsewhere)
    columns["evicted_idle_ns"] = evicted_idle_ns
    assert columns.keys() == MISS_COLUMNS.keys()
    return columns


def summarize_misses(
    columns: Mapping[str, NDArray[np.int64]], measured: NDArray[np.bool_], policies: list[str]
) -> dict[str, Any]:
    """Return ``misses`` of the summary: tokens by cause, eviction policies, and idle times of blocks.

    Only ``measured`` rows count.
    """
    tokens = {cause.name: int(columns[miss_column(cause)][measured].sum()) for cause in reported_by("timed")}
    idle = columns["evicted_idle_ns"][measured]
    idle = idle[idle >= 0]
    return {
        "tokens": sum(tokens.values()),
        **tokens,
        "evicted_by": policies,
        "evicted_idle_ms": {
            "requests": len(idle),
            "avg": float(idle.mean()) / 1e6 if len(idle) else None,
            "max": float(idle.max()) / 1e6 if len(idle) else None,
        },
    }

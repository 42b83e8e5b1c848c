"""The tokens that could have been reused, computed from the trace, and the causes of misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import MISS_COLUMNS, miss_column
from kvcache_sim.metrics.miss_causes import keeps_all_blocks, keeps_no_blocks, miss_causes
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.scenario.load import scenario_of_run
from kvcache_sim.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class Reuse:
    """One entry a finished request, in the order of ``FinishedRun.finished``; tokens but the last three."""

    #: Served from a tier at the first admission.
    cached: NDArray[np.int64]
    #: Name of a cause that timed runs report → tokens; over all causes they sum to ``input_tokens − cached``.
    missed: dict[str, NDArray[np.int64]]
    #: Leading tokens that an earlier request held: what an unbounded cache could have served.
    seen: NDArray[np.int64]
    #: ns since the deepest of these was last used; −1 where nothing was seen.
    idle_ns: NDArray[np.int64]
    #: Row of the request that used it last; −1.
    last_user: NDArray[np.int64]
    #: Longest ns from the last use of an evicted block to the admission that missed it; −1 without one.
    evicted_idle_ns: NDArray[np.int64]


def reuse_of(run: FinishedRun) -> Reuse | None:
    """Return the analysis of a run, or None where its trace is not available.

    Requests count in order of arrival. Cost: O(R log R) for R block references.
    """
    if run.trace is None:
        return None
    rows = run.finished
    trace = run.trace
    references = _References(trace, rows)
    block = run.block_size_tokens
    inputs, cached = rows["input_tokens"], rows["cached_prefix_length_used"]
    full = np.maximum(cached, (inputs - 1) // block * block)
    seen_blocks, last = references.leading(references.previous(references.ids))
    covered = np.minimum(full, np.maximum(cached, seen_blocks * trace.block_size))
    seen = np.maximum(cached, covered // block * block if block <= trace.block_size else covered)
    users = np.where(last >= 0, references.owner[np.maximum(last, 0)], -1)
    since_ns = rows["arrival_ns"] - rows["finish_ns"][np.maximum(users, 0)]
    idle = np.where(last >= 0, np.maximum(since_ns, 0), -1)
    missed, evicted_idle_ns = _missed(run, trace)
    return Reuse(cached, missed, np.where(last >= 0, seen, 0), idle, users, evicted_idle_ns)


def _missed(run: FinishedRun, trace: Trace) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """Return the misses of finished requests by cause, and how long evicted blocks had been idle.

    Those the run reported, or computed now.
    """
    columns = run.requests
    if not columns.keys() >= MISS_COLUMNS.keys():
        cache = scenario_of_run(run.scenario_text, run.directory).settings.cache
        figures = run.summary.get("cache", {})
        left = sum(figures.get("evictions", {}).values()) + figures.get("dropped_blocks", 0)
        kept = keeps_all_blocks(cache) and left > 0
        size, none = cache.block_size_tokens, keeps_no_blocks(cache)
        columns = miss_causes(columns, trace, size, kept, run.junctions, none)
    done = run.requests["status"] == 0
    missed = {cause.name: columns[miss_column(cause)][done] for cause in reported_by("timed")}
    return missed, columns["evicted_idle_ns"][done]


class _References:
    """Every block reference of the finished requests, in order of arrival, as flat arrays."""

    def __init__(self, trace: Trace, rows: dict[str, NDArray[Any]]) -> None:
        order = np.argsort(rows["arrival_ns"], kind="stable")
        request = rows["request"][order].astype(np.int64)
        starts, ends = trace.id_offsets[request], trace.id_offsets[request + 1]
        counts = ends - starts
        self._row_of_order = order
        self._offsets = np.concatenate([[0], np.cumsum(counts)])
        flat = (
            np.arange(self._offsets[-1]) - np.repeat(self._offsets[:-1], counts) + np.repeat(starts, counts)
        )
        self.ids: NDArray[np.int64] = trace.block_ids[flat].astype(np.int64)
        self.owner: NDArray[np.int64] = np.repeat(order, counts)

    def previous(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each reference the index of the one before it with the same key, or −1."""
        order = np.argsort(keys, kind="stable")
        previous = np.full(len(keys), -1, np.int64)
        same = keys[order[1:]] == keys[order[:-1]]
        previous[order[1:][same]] = order[:-1][same]
        return previous

    def leading(self, previous: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return a row's count of leading references that have a previous one, and the last of these (−1)."""
        position = np.arange(len(previous))
        blocked = np.where(previous < 0, position, len(previous))
        starts, ends = self._offsets[:-1], self._offsets[1:]
        first_blocked = ends.copy()
        filled = ends > starts
        if filled.any():
            lowest = np.minimum.reduceat(blocked, starts[filled])
            first_blocked[filled] = np.minimum(lowest, ends[filled])
        counts, last = np.zeros(len(starts), np.int64), np.full(len(starts), -1, np.int64)
        counts[self._row_of_order] = first_blocked - starts
        some = first_blocked > starts
        last[self._row_of_order[some]] = previous[first_blocked[some] - 1]
        return counts, last

"""The part of a run between two of its marks: what was counted there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kvcache_sim.metrics.run import CountedTimes, Mark, Run

#: Counters of blocks that a part of a run has of its own.
_OF_A_PART = ("evictions.", "dropped_blocks", "merged_blocks")


def between_marks(run: Run, begin_ns: int, end_ns: int | None) -> Run:
    """Return the run with the times between tokens and the lost blocks of (begin, end] alone.

    Both are times of ``run.marks``; without an end the run's own is meant.
    """
    first = run.marks[begin_ns]
    last = Mark(run.itl_ns, run.counters) if end_ns is None else run.marks[end_ns]
    counters = {
        name: count - first.counters.get(name, 0) if name.startswith(_OF_A_PART) else run.counters[name]
        for name, count in {**run.counters, **_lost(last.counters)}.items()
    }
    return replace(run, itl_ns=_less(last.itl_ns, first.itl_ns), counters=counters)


def _lost(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counters.items() if name.startswith(_OF_A_PART)}


def _less(all_times: CountedTimes, before: CountedTimes) -> CountedTimes:
    """Return how often each time occurred in the first and not yet in the second, which it contains."""
    counts = all_times.counts.copy()
    counts[np.searchsorted(all_times.values_ns, before.values_ns)] -= before.counts
    left = counts > 0
    return CountedTimes(all_times.values_ns[left], counts[left])

"""The part of a run between two of its marks: what was counted there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kvcache_sim.metrics.channel_use import ChannelUse, later_use
from kvcache_sim.metrics.run import CountedTimes, Mark, Run
from kvcache_sim.metrics.tier_use import later_tier_use

#: Counters that a part of a run has of its own.
_OF_A_PART = (
    "evictions.",
    "dropped_blocks",
    "merged_blocks",
    "edge.",
    "speculation.",
    "groups.",
    "router.",
    "membership.",
    "retention.",
    *(f"pool.{name}" for name in ("hit", "put", "read", "refused", "evicted", "lost")),
    "tenants.",
    "models.",
    "adapters.",
)


def between_marks(run: Run, begin_ns: int, end_ns: int | None) -> Run:
    """Return the run with what was counted in (begin, end] alone.

    That is times between tokens, what tiers and channels did, and the counters of blocks, drafts, machines
    and the router's index. Both ends are times of ``run.marks``; without an end the run's own is meant.
    """
    first = run.marks[begin_ns]
    whole = Mark(run.itl_ns, run.counters, run.channels, run.tiers)
    last = whole if end_ns is None else run.marks[end_ns]
    counters = {
        name: count - first.counters.get(name, 0) if name.startswith(_OF_A_PART) else run.counters[name]
        for name, count in {**run.counters, **_of_a_part(last.counters)}.items()
    }
    return replace(
        run,
        itl_ns=_less(last.itl_ns, first.itl_ns),
        counters=counters,
        channels=_later_channels(last, first),
        tiers=tuple(map(later_tier_use, last.tiers, first.tiers, run.tiers)),
        counted_ns=(run.end_ns if end_ns is None else end_ns) - begin_ns,
    )


def _of_a_part(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counters.items() if name.startswith(_OF_A_PART)}


def _later_channels(last: Mark, first: Mark) -> tuple[ChannelUse, ...]:
    """Return the channels' use since the first mark; some are made when they are first used."""
    before = {use.name: use for use in first.channels}
    return tuple(later_use(use, before[use.name]) if use.name in before else use for use in last.channels)


def _less(all_times: CountedTimes, before: CountedTimes) -> CountedTimes:
    """Return how often each time occurred in the first and not yet in the second, which it contains."""
    counts = all_times.counts.copy()
    counts[np.searchsorted(all_times.values_ns, before.values_ns)] -= before.counts
    left = counts > 0
    return CountedTimes(all_times.values_ns[left], counts[left])

"""A run in windows: of equally many requests, which merge as it grows, or between two of its marks.

Windows of requests show from when on a run is settled, and if it kept up with its arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.channel_use import ChannelUse, later_use
from kvcache_sim.metrics.run import CountedTimes, Mark, Run
from kvcache_sim.metrics.saturation import SampledArrivals
from kvcache_sim.metrics.tier_use import later_tier_use

#: Counters that are counted for a part of a run.
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
    """Return the run with only the counts of (begin, end].

    These are times between tokens, use of tiers and channels, and the counters of blocks, drafts, machines
    and the router's index. Both ends are times of ``run.marks``; an end of None is the end of the run.
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
    """Return the channels' use since the first mark; some channels are created later."""
    before = {use.name: use for use in first.channels}
    return tuple(later_use(use, before[use.name]) if use.name in before else use for use in last.channels)


def _less(all_times: CountedTimes, before: CountedTimes) -> CountedTimes:
    """Return a histogram minus an earlier state of it."""
    counts = all_times.counts.copy()
    counts[np.searchsorted(all_times.values_ns, before.values_ns)] -= before.counts
    left = counts > 0
    return CountedTimes(all_times.values_ns[left], counts[left])


_MOST = 128
_SUMS = ("input_tokens", "cached_prefix_length_used")
_NEVER = 1 << 62


class Windows:
    """Sums of requests by number, rows added in batches in any order.

    At first a window is one request; if more than 128 would be needed, neighbors merge. So any run has at
    most 128 windows. Rejected requests are not counted.
    """

    def __init__(self) -> None:
        #: Requests per window.
        self.size = 1
        #: By window: requests, then the sums of ``_SUMS``.
        self.sums = np.zeros((0, 1 + len(_SUMS)), np.int64)
        self.first_arrival_ns = np.zeros(0, np.int64)

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add the columns of some rows of ``requests``."""
        done = rows["finish_ns"] >= 0
        number = rows["request"][done].astype(np.int64)
        if not len(number):
            return
        while int(number.max()) // self.size >= _MOST:
            self._merge()
        number //= self.size
        self._grow(int(number.max()) + 1)
        values = [np.ones(len(number), np.int64), *(rows[name][done] for name in _SUMS)]
        np.add.at(self.sums, number, np.stack(values, axis=1))
        np.minimum.at(self.first_arrival_ns, number, rows["arrival_ns"][done])

    def _grow(self, count: int) -> None:
        more = count - len(self.sums)
        if more > 0:
            self.sums = np.concatenate([self.sums, np.zeros((more, self.sums.shape[1]), np.int64)])
            self.first_arrival_ns = np.concatenate([self.first_arrival_ns, np.full(more, _NEVER)])

    def _merge(self) -> None:
        self._grow(len(self.sums) + len(self.sums) % 2)
        self.sums = self.sums[0::2] + self.sums[1::2]
        self.first_arrival_ns = np.minimum(self.first_arrival_ns[0::2], self.first_arrival_ns[1::2])
        self.size *= 2

    @property
    def requests(self) -> int:
        """Number of finished requests."""
        return int(self.sums[:, 0].sum())

    def hit_rates(self) -> NDArray[np.float64]:
        """Return the token hit rate of each full window; a shorter last window is left out."""
        whole = self.sums[: max(len(self.sums) - 1, 0)]
        rates: NDArray[np.float64] = whole[:, 2] / np.maximum(whole[:, 1], 1)
        return rates

    def spread_arrivals(self) -> SampledArrivals:
        """Return arrivals that are even in each window."""
        known = np.flatnonzero(self.first_arrival_ns < _NEVER)
        each = max(1, self.size // _MOST)
        if not len(known):
            return SampledArrivals(np.zeros(0, np.int64), each)
        starts = np.maximum.accumulate(self.first_arrival_ns[known])
        before = np.cumsum(self.sums[known, 0]) - self.sums[known, 0]
        at_ns = np.interp(np.arange(0, before[-1] + 1, each), before, starts).astype(np.int64)
        return SampledArrivals(at_ns, each)

    def by_quarter(self) -> NDArray[np.int64]:
        """Return the sums of the four quarters of the windows."""
        return np.stack([part.sum(axis=0) for part in np.array_split(self.sums, 4)])

    def settled_window(self) -> int | None:
        """Return the window from which on the hit rate is steady; None if it is beyond the first half."""
        return steady_from(self.hit_rates())

    def window_at(self, time_ns: int) -> int:
        """Return the first window whose requests all arrive at ``time_ns`` or later."""
        return int(np.count_nonzero(self.first_arrival_ns < time_ns))


def steady_from(values: NDArray[np.float64]) -> int | None:
    """Return the number of leading transient values, by marginal standard errors (MSER; White 1997).

    The cut d minimizes the squared standard error of the mean of the rest: Σ(x − mean)² / (n − d)². None if
    the minimum lies beyond the first half: the values have not settled.
    """
    n = len(values)
    best, least = 0, float("inf")
    for cut in range(n - min(5, n // 4)):
        rest = values[cut:]
        error = float(((rest - rest.mean()) ** 2).sum()) / len(rest) ** 2
        if error < least:
            best, least = cut, error
    return best if best <= n // 2 else None

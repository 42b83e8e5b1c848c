"""Time that the data-parallel ranks of an engine take together in each step: experts, exchange."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Value, field


class SharedTime(Value):
    """A step's shared work in ns, on top of the slowest rank's own part; of one rank there is none.

    ``padded_ns`` is by the tokens of the largest rank, for steps that a CUDA graph holds on each rank: all
    ranks are padded to it. ``total_ns``, of other steps, is by the tokens of all ranks; its last entry holds
    beyond the table.
    """

    ranks: int = 1
    padded_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    total_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def even(self, count: int) -> NDArray[np.int64]:
        """Return the shared time in ns by a rank's tokens, 0 … ``count - 1``, if all ranks have as many."""
        last = len(self.total_ns) - 1
        times_ns = self.total_ns[np.minimum(self.ranks * np.arange(count), last)]
        held = min(count, len(self.padded_ns))
        times_ns[:held] = self.padded_ns[:held]
        return times_ns

    def times(self, factor: float) -> SharedTime:
        """Return the shared time multiplied by a factor."""
        scaled = (np.rint(ns * factor).astype(np.int64) for ns in (self.padded_ns, self.total_ns))
        return SharedTime(self.ranks, *scaled)

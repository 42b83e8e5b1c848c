"""Snapshots of a run's counters at given times, and usage shares of tiers and channels for a progress bar.

A part of a run is the difference of two snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.channels.channel import Link
from kvcache_sim.engine import NO_MACHINE, SAMPLE, Engine
from kvcache_sim.metrics.run import Mark
from kvcache_sim.metrics.sampler import Sampler
from kvcache_sim.serving.replica.contract import MeasuredReplica


class Marks:
    """Records the counters at ``times_ns`` without changing the run. Cost: one event per time."""

    def __init__(
        self, engine: Engine, sampler: Sampler, times_ns: Sequence[int], counted: Callable[[], Mark]
    ) -> None:
        self._engine, self._sampler, self._counted = engine, sampler, counted
        self._times_ns = times_ns
        #: Time → counters at that time; filled during the run.
        self.noted: dict[int, Mark] = {}

    def start(self) -> None:
        """Schedule the times."""
        for at_ns in self._times_ns:
            self._engine.schedule(at_ns, SAMPLE, NO_MACHINE, self._note)

    def _note(self, _: object) -> None:
        self._sampler.catch_up()
        self.noted[self._engine.now_ns] = self._counted()


def used_shares(replicas: Sequence[MeasuredReplica]) -> dict[str, float]:
    """Return by tier the used share of all machines' bounded capacity."""
    used: dict[str, float] = {}
    for level, tier in enumerate(TIERS):
        occupancies = [replica.store.occupancy(level) for replica in replicas if replica.tiers > level]
        capacity = sum(occupancy.capacity_blocks for occupancy in occupancies)
        if occupancies and capacity < 1 << 60:
            used[tier] = 1 - sum(occupancy.free_blocks for occupancy in occupancies) / capacity
    return used


def busy_shares(channels: Mapping[str, Link], now_ns: int) -> dict[str, float]:
    """Return by channel the share of the time until now in which it was sending."""
    return {name: min(channel.busy_ns / max(now_ns, 1), 1.0) for name, channel in channels.items()}

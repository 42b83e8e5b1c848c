"""Usage shares of tiers and channels for a progress bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcache_sim.channels.channel import Link
from kvcache_sim.serving.replica.contract import MeasuredReplica
from kvcache_sim.tiers import TIERS


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

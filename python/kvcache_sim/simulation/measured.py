"""Counters of the parts of a finished cluster, collected for its ``Run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kvcache_sim.base.tiers import STAGING, TIERS
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.channels.channel import Link
from kvcache_sim.metrics.channel_use import ChannelUse
from kvcache_sim.metrics.run import CountedTimes
from kvcache_sim.metrics.tier_use import TierUse
from kvcache_sim.serving.replica.contract import MeasuredReplica
from kvcache_sim.serving.router.index import RouterIndex
from kvcache_sim.serving.settings import ClusterSettings


def tier_uses(settings: ClusterSettings, replica: MeasuredReplica) -> list[TierUse]:
    """Return the reads and writes of each tier of one machine, fast to slow."""
    moved, store = replica.moved, replica.store
    block = settings.cache_of(replica.machine).block_bytes
    uses = []
    for level, tier in enumerate(settings.machines[replica.machine].tiers):
        capacity = None if tier.capacity_blocks is None else tier.capacity_blocks * tier.form.bytes_of(block)
        sizes = moved.written_bytes[level], moved.read_bytes[level]
        duplicates = replica.duplicates(level) if level else 0
        loads = settings.movement.fetch != "never"
        evicted = store.eviction_counts(level).evicted_blocks
        uses.append(TierUse(tier.name, capacity, *sizes, evicted, duplicates, loads))
    return uses


def counters(
    replicas: Sequence[MeasuredReplica],
    routed: Sequence[MeasuredReplica],
    index: RouterIndex | None,
    channels: Mapping[str, Link],
) -> dict[str, int]:
    """Return the counters of a finished run by name; ``routed`` are the replicas that accept requests."""
    found = dict.fromkeys((f"evictions.{t}" for t in TIERS), 0) | {"dropped_blocks": 0}
    for replica in replicas:
        for level in range(replica.tiers):
            lost = replica.store.eviction_counts(level)
            found[f"evictions.{TIERS[level]}"] += lost.evicted_blocks
            found["dropped_blocks"] += lost.overflowed_blocks + lost.orphaned_blocks
    found["machines"] = len(replicas)
    for replica in replicas:
        if replica not in routed:
            found[f"machine.{replica.machine}.routed"] = 0
    if index is not None:
        found["router.false_hit_blocks"] = index.false_hit_blocks
        found["router.missed_hit_blocks"] = index.missed_hit_blocks
    for replica in replicas:
        steps, drafted, by_position = replica.accepted()
        if replica.settings.speculation is not None:
            for name, count in (("steps", steps), ("drafted", drafted)):
                found[f"speculation.{name}"] = found.get(f"speculation.{name}", 0) + count
            for position, count in enumerate(by_position):
                key = f"speculation.accepted.{position}"
                found[key] = found.get(key, 0) + count
    found["merged_blocks"] = sum(r.store.merged_blocks for r in replicas)
    found["steps"] = sum(r.steps for r in replicas)
    for replica in replicas:
        for edge, size in replica.moved.edge_bytes.items():
            found[f"edge.{edge}.bytes"] = found.get(f"edge.{edge}.bytes", 0) + size
        if (blocks := replica.prefetched_blocks) is not None:
            found["prefetched_blocks"] = found.get("prefetched_blocks", 0) + blocks
    for name, channel in channels.items():
        found[f"channel.{name}.bytes"] = channel.sent_bytes
        found[f"channel.{name}.busy_ns"] = channel.busy_ns
        found[f"channel.{name}.queued_ns"] = channel.queued_ns
    return found


def pool_counters(pool: PoolNode, settings: ClusterSettings) -> dict[str, int]:
    """Return the writes, reads and losses of a shared pool so far, by the names of a run's counters."""
    occupancy, lost = pool.tree.occupancy(STAGING), pool.tree.eviction_counts(STAGING)
    return {
        "pool.hit_tokens": pool.hit_blocks * settings.cache.block_size_tokens,
        "pool.put_blocks": pool.put_blocks,
        "pool.read_blocks": pool.read_blocks,
        "pool.refused_blocks": pool.refused_blocks,
        "pool.evicted_blocks": lost.evicted_blocks,
        "pool.lost_blocks": pool.lost_blocks,
        "pool.kept_blocks": occupancy.held_blocks + occupancy.cached_blocks,
    }


def inter_token_latencies(replicas: Sequence[MeasuredReplica]) -> CountedTimes:
    """Return the histogram of inter-token latencies over all machines."""
    merged: dict[int, int] = {}
    for replica in replicas:
        edges, counts, *_ = replica.itl()
        for edge, count in zip(edges, counts, strict=True):
            merged[edge] = merged.get(edge, 0) + count
    values = sorted(merged)
    return CountedTimes(np.array(values, np.int64), np.array([merged[v] for v in values], np.int64))


def channel_use(name: str, channel: Link, now_ns: int) -> ChannelUse:
    """Return the demand and throughput of one channel until now."""
    return ChannelUse(
        name=name,
        bandwidth_bytes_per_s=channel.settings.bandwidth_bytes_per_s,
        sent_bytes=channel.sent_bytes,
        jobs=channel.jobs,
        busy_ns=busy_until_ns(channel, now_ns),
        queued_ns=channel.queued_ns,
        needed=np.array(channel.demand.hiding, np.int64),
        offered=np.array(channel.demand.offered, np.int64),
    )


def busy_until_ns(channel: Link, now_ns: int) -> int:
    """Return a channel's busy time; a layer of a shared channel counts when it has been sent."""
    if channel.by_layer:
        return channel.busy_ns
    return max(channel.busy_ns - channel.wait_ns(now_ns), 0)  # FIFO jobs count when queued

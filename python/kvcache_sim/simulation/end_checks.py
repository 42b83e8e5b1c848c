"""Inexpensive invariants of every run: I6 and I8 of each row, I2, I3, I5 and I9 at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kvcache_sim.base.errors import InvariantError
from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, STAGING
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.channels.channel import Link
from kvcache_sim.metrics.columns import FETCH_PARTS, TTFT_PARTS
from kvcache_sim.metrics.parts import arrays_of
from kvcache_sim.metrics.request_totals import ChosenRows
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.serving.replica.contract import MeasuredReplica
from kvcache_sim.simulation.measured import busy_until_ns


def check_rows(rows: Mapping[str, ColumnData]) -> None:
    """Raise InvariantError unless I6 and the sums of I8 hold in every row of a finished request."""
    columns = arrays_of(rows)
    column = ChosenRows(columns, columns["status"] == 0)
    ttft = column["first_token_ns"] - column["arrival_ns"]
    if any((column[f"{part}_ns"] < 0).any() for part in (*TTFT_PARTS, *FETCH_PARTS)):
        raise InvariantError("I6: a part of TTFT is negative")
    if (column["finish_ns"] < column["first_token_ns"]).any():
        raise InvariantError("I6: a request finished before its first token")
    if not np.array_equal(sum(column[f"{part}_ns"] for part in FETCH_PARTS), column["fetch_ns"]):
        raise InvariantError("I8: capacity waits and the hops' stalls do not sum to the fetch part")
    if not np.array_equal(sum(column[f"{part}_ns"] for part in TTFT_PARTS), ttft):
        raise InvariantError("I8: parts of TTFT do not sum to it")
    cached = column["cached_prefix_length_used"]
    if (cached + column["num_tokens_actually_prefilled"] != column["input_tokens"]).any():
        raise InvariantError("I8: cached + prefilled ≠ prompt tokens")
    if not np.array_equal(sum(column[f"cached_{source}_tokens"] for source in KV_SOURCES), cached):
        raise InvariantError("I8: the tiers' hits do not sum to the hit")


def check_pool(pool: PoolNode) -> None:
    """Raise InvariantError unless the pool's blocks are the stored blocks minus the evicted ones.

    Also raises the errors of its store, and InvariantError if a block is held or in transfer after the end.
    """
    pool.tree.check()
    occupancy, lost = pool.tree.occupancy(STAGING), pool.tree.eviction_counts(STAGING)
    if occupancy.in_flight_blocks or occupancy.held_blocks:
        raise InvariantError("I3: blocks are held after the end", "cluster.pool")
    left = lost.evicted_blocks + lost.orphaned_blocks + pool.lost_blocks + pool.cleared_blocks
    if pool.put_blocks != occupancy.cached_blocks + left:
        raise InvariantError(
            "I2: the pool's blocks are not those that were put there",
            "cluster.pool",
            str(occupancy.cached_blocks),
            f"{pool.put_blocks} put - {left} left",
        )
    if pool.written_bytes != pool.put_blocks * pool.block_bytes:
        raise InvariantError("I2: what the pool's channel brought is not what was put there", "cluster.pool")


def check_channels(
    replicas: Iterable[MeasuredReplica], pool: PoolNode | None, channels: Mapping[str, Link], end_ns: int
) -> None:
    """Raise InvariantError if the bytes of edges and channels differ, or a channel was busy too long.

    Jobs queued by a lost machine and not sent by the end do not count as busy time.

    Args:
        replicas: All machines, including removed ones.
        pool: The shared pool, whose writes belong to no machine's edge.
        channels: All channels of the cluster.
        end_ns: Time of the last event.
    """
    moved = sum(sum(replica.moved.edge_bytes.values()) for replica in replicas)
    if pool is not None:
        moved += pool.written_bytes
    carried = sum(channel.sent_bytes for _, channel in channels.items())
    if moved != carried:
        raise InvariantError(
            "I9: the edges moved other bytes than the channels carried", got=str(moved), expected=str(carried)
        )
    for name, channel in channels.items():
        if busy_until_ns(channel, end_ns) > end_ns:
            raise InvariantError("I5: a channel was busy for longer than the run", f"channel {name}")


def check_stores(replicas: Iterable[MeasuredReplica]) -> None:
    """Raise InvariantError if a block is held or in transfer after the end, or if a store's check fails."""
    for replica in replicas:
        replica.store.check()
        occupancy = replica.store.occupancy(COMPUTE)
        if occupancy.held_blocks or occupancy.in_flight_blocks:
            raise InvariantError("I3: blocks are held after the end", f"machine {replica.machine}")

"""The section ``cluster.pool`` of a scenario."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.scenario.quantities import CapacityField, DurationNs, RateBytesPerS
from kvcache_sim.scenario.section import Field, Section

#: Its channels: what machines read there, and what they put there.
POOL_CHANNELS = "pool-read", "pool-write"


class PoolChannelsSection(Section):
    """The pool's network card: one channel for what machines read there, one for what they put there."""

    bandwidth: RateBytesPerS = Field(25 * 10**9, description="of each of the two; 200Gb/s")
    latency: DurationNs = Field(5_000, description="from the last byte sent to its arrival")
    piece_overhead: DurationNs = Field(0, description="least time of one piece (a block's layer)")
    sharing: Literal["fifo", "fair"] = Field("fifo", description="how jobs at the same time share it")


class SharedPoolSection(Section):
    """Memory of a machine without a GPU that all machines write and read, as Mooncake's store."""

    capacity: CapacityField = Field(description="blocks, a size, or unbounded")
    policy: str | None = Field(None, description="its eviction policy; null: cache.policy")
    channels: PoolChannelsSection = PoolChannelsSection()

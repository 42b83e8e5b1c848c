"""The section ``cluster.pool`` of a scenario."""

from typing import Annotated, Literal

from kvcache_sim.scenario.quantities import CapacityField, DurationNs, RateBytesPerS
from kvcache_sim.scenario.section import Section, about

#: Its channels: what machines read there, and what they put there.
POOL_CHANNELS = "pool-read", "pool-write"


class PoolChannelsSection(Section):
    """The pool's network card: one channel for what machines read there, one for what they put there."""

    bandwidth: Annotated[RateBytesPerS, about("of each of the two; 200Gb/s")] = 25 * 10**9
    latency: Annotated[DurationNs, about("from the last byte sent to its arrival")] = 5_000
    piece_overhead: Annotated[DurationNs, about("least time of one piece (a block's layer)")] = 0
    sharing: Annotated[Literal["fifo", "fair"], about("how jobs at the same time share it")] = "fifo"


class SharedPoolSection(Section):
    """Memory of a machine without a GPU that all machines write and read, as Mooncake's store."""

    capacity: Annotated[CapacityField, about("blocks, a size, or unbounded")]
    policy: Annotated[str | None, about("its eviction policy; null: cache.policy")] = None
    channels: PoolChannelsSection = PoolChannelsSection()

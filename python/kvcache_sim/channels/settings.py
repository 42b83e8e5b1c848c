"""Settings of channels: the channels that a scenario names, and the channels between machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvcache_sim.base.values import Value, field


class Slowdown(Value):
    """A time span in which a channel has a share of its rate, in millionths; 0: no traffic."""

    from_ns: int
    until_ns: int
    share_ppm: int


class ChannelSettings(Value):
    """One channel: rate, latency and the cost of each piece; edges that name it contend (semantics 3).

    ``piece_overhead_ns`` is the least time of a piece, ``piece_gap_ns`` the time between the bytes of two
    pieces, ``piece_submit_ns`` the CPU time to submit a piece. All pieces of a job are submitted before its
    first byte.
    """

    name: str
    bandwidth_bytes_per_s: int
    latency_ns: int = 0
    piece_overhead_ns: int = 0
    piece_gap_ns: int = 0
    piece_submit_ns: int = 0
    sharing: Literal["fifo", "fair"] = "fifo"
    priority: Literal["in-order", "loads-first"] = "in-order"
    latency_occupies: bool = False
    #: In order of time, without overlap.
    slowdowns: tuple[Slowdown, ...] = ()

    @property
    def is_fair(self) -> bool:
        """True if all jobs share the rate."""
        return self.sharing == "fair"

    @property
    def loads_first(self) -> bool:
        """True if transfers towards the GPU have priority."""
        return self.priority == "loads-first"


class NetworkSettings(Value):
    """Channels between machines, by (owner, reader).

    ``pairs`` maps (owner, reader) to a channel; any other ordered pair has its own channel after ``default``.
    """

    pairs: dict[tuple[int, int], str] = field(default_factory=dict)
    default: ChannelSettings = ChannelSettings("net", 50_000_000_000, 5_000)


class ClusterChannels(Value):
    """All channels of a cluster: the channels of its machines' edges, and the channels between machines."""

    named: Mapping[str, ChannelSettings]
    network: NetworkSettings = NetworkSettings()

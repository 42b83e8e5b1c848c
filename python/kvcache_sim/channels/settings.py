"""Settings of channels: those that a scenario names, and those between machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvcache_sim.values import Value, field


class Slowdown(Value):
    """A time in which a channel has a share of its rate, in millionths; 0: nothing passes."""

    from_ns: int
    until_ns: int
    share_ppm: int


class ChannelSettings(Value):
    """One channel: rate, latency and the cost of each piece; edges that name it contend (semantics 3).

    ``piece_overhead_ns`` is the least time of a piece, ``piece_gap_ns`` that between the bytes of one piece
    and the next, ``piece_submit_ns`` the CPU's to submit one, all of a job's before its first byte.
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
        """Whether all jobs share the rate."""
        return self.sharing == "fair"

    @property
    def loads_first(self) -> bool:
        """Whether what goes towards the GPU goes first."""
        return self.priority == "loads-first"


class NetworkSettings(Value):
    """Channels between machines: which one carries what a reader takes from an owner.

    ``pairs`` maps (owner, reader) to a channel; any other ordered pair has one of its own, after ``default``.
    """

    pairs: dict[tuple[int, int], str] = field(default_factory=dict)
    default: ChannelSettings = ChannelSettings("net", 50_000_000_000, 5_000)


class ClusterChannels(Value):
    """All channels of a cluster: those that edges of its machines name, and those between machines."""

    named: Mapping[str, ChannelSettings]
    network: NetworkSettings = NetworkSettings()

"""A channel from outside: the times of a job, and what was carried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.values import Struct

#: A time that is not known yet: later than any other.
NOT_YET = 1 << 62


class Transmission(Struct):
    """The times of one job: its start, the arrival of its first layer and of all, the time per layer.

    On a channel served layer by layer a time is ``NOT_YET`` until it has come.
    """

    start_ns: int
    first_layer_ns: int
    completion_ns: int
    per_layer_ns: int


class Demand(Protocol):
    """Samples of the rate that a channel was asked for, in bytes a second (``Demand`` of the core).

    ``hiding``: by step that used KV while it still arrived, its bytes on this channel over its own compute
    time: at that rate no more than the first layer is exposed. ``offered``: by second of simulated time in
    which anything was sent, the one under way included.
    """

    @property
    def hiding(self) -> Sequence[int] | NDArray[np.int64]:
        """The samples by step."""
        ...

    @property
    def offered(self) -> Sequence[int] | NDArray[np.int64]:
        """The samples by second."""
        ...


class Link(Protocol):
    """Settings of a channel and what it has carried so far: what measurements and plug-ins see."""

    @property
    def settings(self) -> ChannelSettings:
        """Rate, latency and sharing."""
        ...

    @property
    def busy_ns(self) -> int:
        """Time for which it has been, or will be, occupied by what was queued."""
        ...

    @property
    def queued_ns(self) -> int:
        """Time that jobs have waited for earlier ones, all together."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Bytes queued so far."""
        ...

    @property
    def jobs(self) -> int:
        """Jobs queued so far."""
        ...

    @property
    def demand(self) -> Demand:
        """The rate that was asked of it."""
        ...

    @property
    def by_layer(self) -> bool:
        """Whether it is served layer by layer, its times final only as they come."""
        ...

    def wait_ns(self, now_ns: int, pieces: int = 0, /) -> int:
        """Return the time that a job of so many pieces would wait, as far as is known, for its first byte."""
        ...

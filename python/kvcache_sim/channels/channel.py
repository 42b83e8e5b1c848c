"""The interface of a channel: the times of a job, and its traffic so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Struct
from kvcache_sim.channels.settings import ChannelSettings

#: An unknown time, in ns: later than any other.
NOT_YET = 1 << 62


class TransmissionTimes(NamedTuple):
    """The three times (ns) that ``transmit`` of seed 001 returns: of all layers, the first, and a layer."""

    completion_ns: int
    first_layer_ns: int
    per_layer_ns: int


class Transmission(Struct):
    """The times (ns) of one job: its start, the arrival of its first layer and of all, the time per layer.

    On a channel served layer by layer a time is ``NOT_YET`` until it has passed.
    """

    start_ns: int
    first_layer_ns: int
    completion_ns: int
    per_layer_ns: int

    @property
    def times(self) -> TransmissionTimes:
        """The three times of seed 001."""
        return TransmissionTimes(self.completion_ns, self.first_layer_ns, self.per_layer_ns)


class Demand(Protocol):
    """Samples of the demand on a channel, in bytes per second (``Demand`` of the core).

    ``hiding``: for each step that used KV while it still arrived, its bytes on this channel over its compute
    time; at that rate only the first layer is exposed. ``offered``: for each second of simulated time with
    traffic, the current second included.
    """

    @property
    def hiding(self) -> Sequence[int] | NDArray[np.int64]:
        """Samples by step, in bytes per second."""
        ...

    @property
    def offered(self) -> Sequence[int] | NDArray[np.int64]:
        """Samples by second, in bytes per second."""
        ...


class Link(Protocol):
    """Settings and traffic of a channel, as measurements and plug-ins read them."""

    @property
    def settings(self) -> ChannelSettings:
        """Rate, latency and sharing."""
        ...

    @property
    def busy_ns(self) -> int:
        """Time for which queued jobs have occupied it or will occupy it."""
        ...

    @property
    def queued_ns(self) -> int:
        """Total time that jobs have waited for earlier jobs."""
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
        """Samples of the demand on it."""
        ...

    @property
    def by_layer(self) -> bool:
        """True if it is served layer by layer, with times final only once they have passed."""
        ...

    def wait_ns(self, now_ns: int, pieces: int = 0, /) -> int:
        """Return the known waiting time of a new job before its first byte.

        Args:
            now_ns: Current time, in ns.
            pieces: Number of pieces of the job; each needs CPU time to submit.

        Returns:
            The time, in ns.
        """
        ...

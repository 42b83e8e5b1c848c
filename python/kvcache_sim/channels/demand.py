"""How much rate a channel was asked for: by the second, and by the steps that its loads had to hide under."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.units import NS_PER_S

#: The highest rate that a column of samples holds: what an instant step loads has no time to come.
_MOST = 2**63 - 1


class AnyDemand(Protocol):
    """Samples of the rate that a channel was asked for: ``Demand`` here, or the core's."""

    @property
    def hiding(self) -> Sequence[int] | NDArray[np.int64]:
        """The samples by step."""
        ...

    @property
    def offered(self) -> Sequence[int] | NDArray[np.int64]:
        """The samples by second, the one under way included."""
        ...

    def ask(self, size_bytes: int, now_ns: int, /) -> None:
        """Note a job that is queued now."""
        ...

    def hide(self, size_bytes: int, compute_ns: int, /) -> None:
        """Note what one step loads over the channel while it computes."""
        ...


class Demand:
    """Samples of the rate, in bytes a second, that a channel would have needed.

    ``hiding``: a sample a step that used KV while it still arrived: its bytes on this channel over the step's
    own compute time. At that rate layers arrive as fast as they are computed, so that no more than the first
    one is exposed (seed 001: loading overlapped with compute). ``offered``: a sample a second of simulated
    time in which anything was sent: its bytes. Cost: 8 bytes a sample.
    """

    __slots__ = ("_offered", "_second", "_sum", "hiding")

    def __init__(self) -> None:
        self.hiding = array("q")
        self._offered = array("q")
        self._second = -1
        self._sum = 0

    def ask(self, size_bytes: int, now_ns: int) -> None:
        """Note a job that is queued now; jobs come in time order."""
        second = now_ns // NS_PER_S
        if second != self._second:
            if self._second >= 0:
                self._offered.append(self._sum)
            self._second, self._sum = second, 0
        self._sum += size_bytes

    def hide(self, size_bytes: int, compute_ns: int) -> None:
        """Note what one step loads over the channel while it computes for ``compute_ns``."""
        self.hiding.append(min(-(-size_bytes * NS_PER_S // max(compute_ns, 1)), _MOST))

    @property
    def offered(self) -> array[int]:
        """The samples by the second, the one under way included."""
        return self._offered + array("q", [self._sum] * (self._second >= 0))

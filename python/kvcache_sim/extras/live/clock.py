"""The wall clock of a live run, and garbage collection that does not delay it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from kvcache_sim.base.units import NS_PER_S


class WallClock:
    """Simulated time, in ns: ``speed`` times the time since its start."""

    def __init__(self, speed: float = 1.0, wall_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.speed, self.wall_ns = speed, wall_ns
        self._start_ns = wall_ns()
        #: Start, in seconds since 1970.
        self.started_s = time.time()

    def now_ns(self) -> int:
        """Return the current simulated time."""
        return int((self.wall_ns() - self._start_ns) * self.speed)

    def seconds_until(self, simulated_ns: int) -> float:
        """Return the wall-clock seconds until a simulated time; negative once it has passed."""
        return (simulated_ns - self.now_ns()) / (NS_PER_S * self.speed)

    def behind_ns(self, simulated_ns: int) -> int:
        """Return the wall-clock time (ns) since a simulated time."""
        return int((self.now_ns() - simulated_ns) / self.speed)

    def date_s(self, simulated_ns: int) -> float:
        """Return the date of a simulated time in seconds since 1970."""
        return self.started_s + simulated_ns / (NS_PER_S * self.speed)


def settle() -> None:
    """Collect garbage once; later collections visit only objects created from now on."""
    gc.collect()
    gc.freeze()
    gc.collect()  # sets the object count that triggers a full collection

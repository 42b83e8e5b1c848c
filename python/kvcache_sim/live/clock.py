"""The wall clock of a live run, the only one that a simulation ever sees; garbage that may not hold it up."""

from __future__ import annotations

import gc
import time

from kvcache_sim.units import NS_PER_S


class WallClock:
    """Simulated time, in ns: ``speed`` times the time since its start."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._start_ns = time.monotonic_ns()
        #: When it started, in seconds since 1970.
        self.started_s = time.time()

    def now_ns(self) -> int:
        """Return the simulated time that it is now."""
        return int((time.monotonic_ns() - self._start_ns) * self.speed)

    def seconds_until(self, simulated_ns: int) -> float:
        """Return the wall-clock seconds until a simulated time; negative once it is past."""
        return (simulated_ns - self.now_ns()) / (NS_PER_S * self.speed)

    def behind_ns(self, simulated_ns: int) -> int:
        """Return by how much wall-clock time a simulated moment lies back."""
        return int((self.now_ns() - simulated_ns) / self.speed)

    def date_s(self, simulated_ns: int) -> float:
        """Return the date of a simulated moment in seconds since 1970."""
        return self.started_s + simulated_ns / (NS_PER_S * self.speed)


def settle() -> None:
    """Look for garbage once, and from now on only among what comes later: all that is here stays."""
    gc.collect()
    gc.freeze()
    gc.collect()  # sets how many objects are many enough to look through all of them

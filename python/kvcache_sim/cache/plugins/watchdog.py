"""Names a plug-in that does not return; wall-clock time decides nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kvcache_sim.cache.plugins.contract import PolicyViolation

#: One hook call may take this long.
LIMIT_S = 10.0


class Watchdog:
    """Counts hook calls; a call that lasts over the limit is interrupted (main thread only)."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        #: Raised by the host before every hook call.
        self.calls = 0
        self._seen = -1

    def tick(self, signum: int, frame: FrameType | None) -> None:
        """Raise where no call has begun since the last tick."""
        if self._seen == self.calls:
            raise PolicyViolation(
                "did not return",
                where=f"policy {self.policy}",
                got=f"no answer within {LIMIT_S:g} s at hook call {self.calls}",
            )
        self._seen = self.calls


@contextmanager
def watched(policy: str, limit_s: float = LIMIT_S) -> Iterator[Watchdog]:
    """Watch a plug-in while the block runs; without effect outside the main thread."""
    dog = Watchdog(policy)
    if threading.current_thread() is not threading.main_thread():
        yield dog
        return
    before = signal.signal(signal.SIGALRM, dog.tick)
    signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)
    try:
        yield dog
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

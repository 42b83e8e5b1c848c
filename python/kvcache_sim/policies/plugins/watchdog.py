"""Names a plug-in that does not return; wall-clock time decides nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kvcache_sim.policies.plugins.contract import PolicyViolation

#: One hook call may take this long.
LIMIT_S = 10.0


class Watchdog:
    """Counts hook calls; a call that lasts over the limit is interrupted (main thread only)."""

    def __init__(self, policy: str, watches: bool = True, at_work: bool = True) -> None:
        self.policy = policy
        #: Raised by the host before every hook call.
        self.calls = 0
        #: False where nothing needs watching.
        self.watches = watches
        #: Whether a call is under way.
        self.at_work = at_work
        self._seen = -1

    def start(self) -> None:
        """Watch from now on: there is something that may not return."""
        self.watches = True

    def tick(self, signum: int, frame: FrameType | None) -> None:
        """Raise where no call has begun since the last tick."""
        if self.at_work and self._seen == self.calls:
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
    with watching(dog, limit_s):
        yield dog


@contextmanager
def watching(dog: Watchdog, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Let a dog watch while the block runs, then the one before; without effect outside the main thread."""
    if not dog.watches or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, dog.tick)
    timer = signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)

"""Interrupts and names a plug-in that does not return; wall-clock time decides nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kvcache_sim.policies.plugins.contract import PolicyViolation

#: Time limit of one hook call, in seconds.
LIMIT_S = 10.0


class Watchdog:
    """Counts hook calls; a call over the time limit is interrupted (main thread only)."""

    def __init__(self, asked: str = "", watches: bool = True) -> None:
        #: The policy whose hook runs; "": none.
        self.asked = asked
        #: Incremented by the host before every hook call.
        self.calls = 0
        #: False if nothing needs watching.
        self.watches = watches
        self.limit_s = LIMIT_S
        self._seen = -1
        #: The handler and the timer that it replaced while it watches.
        self._replaced: tuple[Any, tuple[float, float]] | None = None

    def start(self) -> None:
        """Start watching: there is a plug-in that may not return."""
        self.watches = True
        if duty.dog is self:
            self.arm()

    def arm(self) -> None:
        """Start the timer; without effect outside the main thread."""
        if self._replaced is None and threading.current_thread() is threading.main_thread():
            handler = signal.signal(signal.SIGALRM, self.tick)
            timer = signal.setitimer(signal.ITIMER_REAL, self.limit_s, self.limit_s)
            self._replaced = handler, timer

    def disarm(self) -> None:
        """Stop the timer, and restart the one that it replaced."""
        if self._replaced is not None:
            handler, timer = self._replaced
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, *timer)
            self._replaced = None

    def tick(self, signum: int, frame: FrameType | None) -> None:
        """Raise if no call has started since the last tick."""
        if self.asked and self._seen == self.calls:
            raise PolicyViolation(
                "did not return",
                where=f"policy {self.asked}",
                got=f"no answer within {LIMIT_S:g} s at hook call {self.calls}",
            )
        self._seen = self.calls


class _Duty(threading.local):
    """The watchdog of this thread's plug-ins, if there is one."""

    dog: Watchdog | None = None


duty = _Duty()


@contextmanager
def watched(policy: str, limit_s: float = LIMIT_S) -> Iterator[Watchdog]:
    """Watch a plug-in while the block runs; without effect outside the main thread."""
    dog = Watchdog(policy)
    with watching(dog, limit_s):
        yield dog


@contextmanager
def watching(dog: Watchdog, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Use a watchdog while the block runs, then the previous one; without effect outside the main thread."""
    before, duty.dog = duty.dog, dog
    dog.limit_s = limit_s
    if dog.watches:
        dog.arm()
    try:
        yield
    finally:
        if before is not dog:
            dog.disarm()
        duty.dog = before

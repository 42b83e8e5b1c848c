"""Requests to stop a sweep: the first is graceful, the second immediate."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kvcache_sim.base.stop_signals import exit_code_of, stop_signals


class StopRequest:
    """A request to stop: ``level`` 0 continue, 1 finish the running cells, 2 kill them.

    ``fileno`` becomes readable when the level changes: a selector wakes a runner that waits for its workers.
    """

    def __init__(self) -> None:
        self.level = 0
        #: Exit code of the reason, 0 while there is none.
        self.exit_code = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable at each request."""
        return self._reader

    def ask(self, level: int, exit_code: int) -> None:
        """Raise the level (never lower it) and keep the first reason."""
        self.level = max(self.level, level)
        self.exit_code = self.exit_code or exit_code
        os.write(self._writer, b"!")

    def acknowledge(self) -> None:
        """Drain the descriptor."""
        os.read(self._reader, 4096)

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn signals into a ``StopRequest``: the first SIGINT is graceful, all others are immediate."""
    stop = StopRequest()

    def asked(number: int, frame: FrameType | None) -> None:
        del frame
        stop.ask(1 if number == signal.SIGINT and not stop.level else 2, exit_code_of(number))

    before = {number: signal.signal(number, asked) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()

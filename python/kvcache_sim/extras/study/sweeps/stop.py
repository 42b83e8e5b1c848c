"""Requests to stop a sweep: the first is graceful, the second immediate."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kvcache_sim.base.errors import EXIT_SIGINT, EXIT_SIGTERM


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
    """Turn SIGINT (first: graceful, second: immediate), SIGTERM and SIGHUP into a ``StopRequest``."""
    stop = StopRequest()

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.ask(min(stop.level + 1, 2), EXIT_SIGINT)

    def terminate(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.ask(2, EXIT_SIGTERM)

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGHUP: terminate}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()

"""Worker processes and the time, behind one small interface, so that tests can draw their order and ends."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Protocol

from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.worker import receive, send


class Process(Protocol):
    """A worker process: messages to it and from it."""

    def send(self, message: object) -> None:
        """Send a message; a process that has died ignores it."""
        ...

    def receive(self) -> object | None:
        """Return its next message, waiting for it; None once it has died."""
        ...

    def last_words(self) -> str:
        """Return the exit code or signal of a process that has died, and the last line that it printed."""
        ...

    def close(self) -> None:
        """Kill it if it still runs, and release its resources."""
        ...


class Processes(Protocol):
    """Starts worker processes, waits for their messages, and measures the time."""

    def now_s(self) -> float:
        """Return the time, in seconds that never decrease."""
        ...

    def start(self) -> Process:
        """Start a worker process."""
        ...

    def wait(
        self, processes: Sequence[Process], stop: StopRequest | None, patience_s: float | None
    ) -> Sequence[Process]:
        """Wait for messages, deaths, a request to stop, or some seconds; return what can be received from."""
        ...


class LocalProcess:
    """A spawned interpreter that serves cells (``worker``)."""

    def __init__(self) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
        task_reader, self._writer = os.pipe()
        self.reader, answer_writer = os.pipe()
        command = [sys.executable, "-m", "kvcache_sim.extras.study.sweeps.worker"]
        self._process = subprocess.Popen(
            [*command, str(task_reader), str(answer_writer), str(os.getpid())],
            pass_fds=(task_reader, answer_writer),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            process_group=0,  # Ctrl-C in the terminal reaches the supervisor alone
        )
        os.close(task_reader)
        os.close(answer_writer)

    def send(self, message: object) -> None:
        """Send a message; a process that has died ignores it."""
        with contextlib.suppress(BrokenPipeError):
            send(self._writer, message)

    def receive(self) -> object | None:
        """Return its next message, waiting for it; None once it has died."""
        return receive(self.reader)

    def last_words(self) -> str:
        """Return the exit code or signal of a process that has died, and the last line that it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)  # a process that closed its pipe is about to end by itself
        code = self._process.poll()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        end = (
            "still there" if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"
        )
        return f"{end}: {lines[-1].strip()[:300]}" if lines else end

    def close(self) -> None:
        """Kill it if it still runs, and release its descriptors."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self.reader)
        os.close(self._writer)
        self._log.close()


class LocalProcesses:
    """Processes of this machine and its monotonic clock."""

    def now_s(self) -> float:
        """Return the time, in seconds that never decrease."""
        return time.monotonic()

    def start(self) -> LocalProcess:
        """Start a worker process."""
        return LocalProcess()

    def wait(
        self, processes: Sequence[Process], stop: StopRequest | None, patience_s: float | None
    ) -> Sequence[Process]:
        """Wait for messages, deaths, a request to stop, or some seconds; return what can be received from."""
        with selectors.DefaultSelector() as selector:
            for process in processes:
                assert isinstance(process, LocalProcess)
                selector.register(process.reader, selectors.EVENT_READ, process)
            if stop is not None:
                selector.register(stop, selectors.EVENT_READ)
            ready = [key.data for key, _ in selector.select(patience_s)]
        if stop is not None and None in ready:
            stop.acknowledge()
        return [process for process in ready if process is not None]

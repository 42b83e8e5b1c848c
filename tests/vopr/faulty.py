"""A disk that fills up, or whose process is killed, at the n-th change of a file; a clock of an event loop."""

from __future__ import annotations

import asyncio
import errno
import random
import selectors
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from kvcache_sim.base.disk import LocalDisk


class Killed(SystemExit):
    """The end of a process by SIGKILL, which an event loop lets through; no clean-up may change a file then."""


class FaultyDisk(LocalDisk):
    """The file system; its n-th change (from 1) and all later ones end the process or find the disk full."""

    def __init__(self, kill_at: int = 0, full_at: int = 0) -> None:
        self.changes = 0
        self._kill_at, self._full_at = kill_at, full_at

    def change(self) -> None:
        self.changes += 1
        if self._kill_at and self.changes >= self._kill_at:
            raise Killed
        if self._full_at and self.changes >= self._full_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, path: Path) -> IO[bytes]:
        self.change()
        return cast(IO[bytes], _File(super().create(path), self))

    def replace(self, source: Path, target: Path) -> None:
        self.change()
        super().replace(source, target)

    def make_folder(self, path: Path) -> None:
        self.change()
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        if self._kill_at:
            self.change()
        super().remove(path)


class _File:
    def __init__(self, file: IO[bytes], disk: FaultyDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: bytes) -> int:
        try:
            self._disk.change()
        except BaseException:
            self._file.write(data[: len(data) // 2])
            raise
        return self._file.write(data)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Selector(selectors.DefaultSelector):
    """A selector whose waits pass at once; the clock of its loop moves instead."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits, and no timer is set")
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on a simulated clock, which jumps now and then as that of a suspended machine does."""

    def __init__(self, seed: int, jumps: float) -> None:
        self._clock = _Selector()
        self._draw, self._jumps = random.Random(seed), jumps
        super().__init__(self._clock)
        self.set_exception_handler(self._broken)
        self.errors: list[Mapping[str, Any]] = []

    def time(self) -> float:
        return self._clock.now_s

    def wall_ns(self) -> int:
        if self._draw.random() < self._jumps:
            self._clock.now_s += self._draw.choice([0.0005, 0.2, 30.0])
        return int(self._clock.now_s * 1e9)

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context)

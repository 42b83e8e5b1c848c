"""One sweep a directory: a lock the kernel drops when its holder dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvcache_sim.errors import InputOutputError, OutputExistsError
from kvcache_sim.file_lock import FileLock


def claim(directory: Path) -> None:
    """Make a sweep's directory, or check that it is one: raises ``OutputExistsError`` for a foreign one."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        foreign = next(directory.iterdir(), None) is not None and not (directory / "sweep.lock").exists()
    except FileExistsError:
        raise OutputExistsError("not a directory", where=str(directory)) from None
    except OSError as error:
        raise InputOutputError(f"cannot use: {error.strerror}", where=str(directory)) from error
    if foreign:
        raise OutputExistsError(
            "not empty and not a sweep", where=str(directory), hint="choose another -o: nothing was changed"
        )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold ``sweep.lock`` in a directory; raises ``OutputExistsError`` naming the live holder."""
    path = directory / "sweep.lock"
    try:
        lock = FileLock(path)
    except OSError as error:
        raise InputOutputError(f"cannot use: {error.strerror}", where=str(path)) from error
    try:
        yield
    finally:
        lock.close()

"""One sweep a directory: a lock the kernel drops when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvcache_sim.errors import InputOutputError, OutputExistsError


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
    """Hold ``sweep.lock`` in a directory; raises ``OutputExistsError`` naming the live holder.

    ``flock`` leaves with its process, so the lock of a killed sweep needs no clearing up.
    """
    path = directory / "sweep.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputOutputError(f"cannot open: {error.strerror}", where=str(path)) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputExistsError(
                "another sweep is running here",
                where=str(directory),
                got=_holder(handle),
                hint="wait for it, stop it, or choose another -o",
            ) from None
        _write_holder(handle, path)
        yield
    finally:
        os.close(handle)


def _write_holder(handle: int, path: Path) -> None:
    text = json.dumps({"pid": os.getpid(), "host": platform.node()}).encode()
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, text, 0)
    except OSError as error:
        raise InputOutputError(f"cannot write: {error.strerror}", where=str(path)) from error


def _holder(handle: int) -> str:
    try:
        holder = json.loads(os.pread(handle, 1000, 0))
        return f"pid {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown holder"

"""Writes one file whole or not at all, and never over another unless told to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kvcache_sim.errors import InputOutputError, OutputExistsError


def write_new(path: Path, data: bytes, overwrite: bool) -> None:
    """Write a file beside its place and rename it there.

    Raises ``OutputExistsError`` where something is there and ``overwrite`` is not given, ``InputOutputError``
    where it cannot be written; nothing half-written stays behind.
    """
    if path.exists() and not overwrite:
        raise OutputExistsError("output exists", where=str(path), hint="--force replaces it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputOutputError(f"cannot write: {error.strerror}", where=str(path)) from error

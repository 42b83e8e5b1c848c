"""Files for people: written whole, never over another one by accident."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kvcache_sim.errors import InputOutputError, OutputExistsError


def write_new(path: Path, data: bytes, overwrite: bool) -> None:
    """Write a file whole or not at all; raises ``OutputExistsError`` or ``InputOutputError``."""
    if path.exists() and not overwrite:
        raise OutputExistsError("exists", where=str(path), hint="--force overwrites it")
    temporary = path.with_name(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputOutputError(f"cannot write: {error.strerror}", where=str(path)) from None

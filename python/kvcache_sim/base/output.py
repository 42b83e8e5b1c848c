"""Output files: written atomically, and never over an existing file unless ``overwrite`` is set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import InputOutputError, OutputExistsError


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise ``OutputExistsError`` for all but a file, and for an existing file without ``overwrite``."""
    if path.exists() and not path.is_file():
        kind = "directory" if path.is_dir() else "device or pipe"
        raise OutputExistsError("the output exists", where=str(path), hint=f"a {kind}; give another name")
    if os.path.lexists(path) and not overwrite:  # a link to nothing counts
        raise OutputExistsError("the output exists", where=str(path), hint="--force replaces it")


@contextmanager
def new_file(path: Path, overwrite: bool, disk: Disk = LOCAL_DISK) -> Iterator[IO[bytes]]:
    """Yield a binary file next to ``path`` that is renamed to it if the block ends without an error.

    Raises as ``refuse_existing``, and ``InputOutputError`` if the file cannot be written. Errors of the block
    propagate; no partial file stays.
    """
    refuse_existing(path, overwrite)
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    try:
        with disk.create(temporary) as file:
            yield file
        disk.replace(temporary, path)
    except OSError as error:
        raise InputOutputError(f"cannot write: {error.strerror or error}", where=str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            disk.remove(temporary)


def write_new(path: Path, data: bytes, overwrite: bool, disk: Disk = LOCAL_DISK) -> None:
    """Write a file; raises as ``new_file`` does."""
    with new_file(path, overwrite, disk) as file:
        file.write(data)


def csv_field(value: object) -> object:
    """Return a value for a CSV file; text that a spreadsheet would evaluate gets an apostrophe prefix."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_COMPUTED) else value


#: First characters of formulas (OWASP, CSV injection).
_COMPUTED = ("=", "+", "-", "@", "\t", "\r")

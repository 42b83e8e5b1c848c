"""Regular files: opening one and nothing else, and the exchange of two directories in one step."""

from __future__ import annotations

import errno
import os
import stat
import sys
from io import BufferedReader
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS
_AT_FDCWD = -100


def open_regular(path: Path) -> BufferedReader:
    """Open a file to be read; OSError for a directory, pipe, socket or device, without waiting for it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file; raises as ``open_regular``."""
    with open_regular(path) as file:
        return file.read()


def exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two directories in one step; False where the system cannot.

    A process that is killed leaves both, under one pair of names or the other.
    """
    import ctypes  # few runs replace one

    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        renamed = getattr(library, "renamex_np", None)
        return renamed is not None and renamed(*names, _EXCHANGE) == 0
    renamed = getattr(library, "renameat2", None)
    return renamed is not None and renamed(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0

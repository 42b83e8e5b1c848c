"""Changes of files behind one small interface, so that tests can fail or end at any of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, Protocol


class Disk(Protocol):
    """The changes of files by a run, a sweep and a server; each raises OSError."""

    def create(self, path: Path) -> IO[bytes]:
        """Open a new or emptied file for writing."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file or directory, over a file or an empty directory of that name."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a directory; FileExistsError if the name is taken."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there, or a directory with everything in it, ignoring errors in it."""
        ...


class LocalDisk:
    """The file system."""

    def create(self, path: Path) -> IO[bytes]:
        """Open a new or emptied file for writing."""
        return path.open("wb")

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file or directory."""
        os.replace(source, target)

    def make_folder(self, path: Path) -> None:
        """Make a directory."""
        path.mkdir()

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there, or a directory with everything in it, ignoring errors in it."""
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # an empty one goes without a descriptor
                path.rmdir()
                return
            import shutil  # and with it three compressors: few runs remove anything

            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


LOCAL_DISK = LocalDisk()

"""A lock file that names its owner; the kernel releases the lock when the owner exits."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from pathlib import Path

from kvcache_sim.base.errors import OutputExistsError


class FileLock:
    """An exclusive ``flock`` on a file, held until ``close``; the file holds the process and host.

    The lock of a killed process needs no cleanup. File-lock libraries truncate the file before they acquire
    the lock, which would lose the owner's name.
    """

    def __init__(self, path: Path) -> None:
        """Acquire the lock; raises OutputExistsError naming the live owner, OSError for the file itself."""
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = json.dumps({"pid": os.getpid(), "host": platform.node()}).encode()
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, holder, 0)
        except BlockingIOError:
            name = self._holder()
            self.close()
            raise OutputExistsError(
                "another process is writing here",
                where=str(path.parent),
                got=name,
                hint="wait for it, stop it, or choose another -o",
            ) from None
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _holder(self) -> str:
        try:
            holder = json.loads(os.pread(self._handle, 1000, 0))
            return f"pid {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "an unknown process"

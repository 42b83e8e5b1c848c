"""A virtual environment in an empty folder, with no Rust on its path and nothing of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: The locks that ``make lock`` writes.
LOCKS = Path(__file__).resolve().parents[2] / "requirements"
#: What of the caller's environment a command gets: how to reach the package index, and no more.
_PASSED = ("PIP_", "HTTP", "NO_PROXY", "SSL_", "REQUESTS_", "http", "no_proxy")


class Failed(Exception):
    """Something that does not hold, in one line."""


class Environment:
    """A folder with a virtual environment; gone when the ``with`` block ends.

    What it installs comes from the files of ``lock`` alone, whose hashes pip compares.
    """

    def __init__(self, python: str, lock: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvsim-clean-")
        self.folder = Path(self._folder.name)
        self.work = self.folder / "work"
        self.work.mkdir()
        subprocess.run([python, "-m", "venv", str(self.folder / "venv")], check=True, capture_output=True)
        self.bin = self.folder / "venv" / "bin"
        system = [
            p for p in ("/usr/bin", "/bin") if not any(Path(p, tool).exists() for tool in ("cargo", "rustc"))
        ]
        self.path = os.pathsep.join([str(self.bin), *system])
        for tool in ("cargo", "rustc"):
            if found := shutil.which(tool, path=self.path):
                raise Failed(f"{found} is on the path of the clean environment")
        self._index: dict[str, str] = {}
        fetched = self.fetch(lock, "wheels")
        if fetched.returncode:
            raise Failed(f"{lock}: {fetched.stderr.strip()}")
        self._index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.work / "wheels")}

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the work folder and accept any exit code."""
        passed = {key: value for key, value in os.environ.items() if key.startswith(_PASSED)}
        environment = passed | {"PATH": self.path, "HOME": str(self.folder), "LANG": "C.UTF-8"} | self._index
        return subprocess.run(
            [shutil.which(command[0], path=self.path) or command[0], *command[1:]],
            cwd=self.work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def expect(self, *command: str, code: int = 0, stderr: str | None = None) -> str:
        """Return what a command printed; raises ``Failed`` where it ends otherwise."""
        done = self.run(*command)
        if done.returncode != code or (stderr is not None and stderr not in done.stderr):
            reported = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Failed(
                f"{' '.join(command)}: exit {done.returncode} (expected {code}); {' '.join(reported)}"
            )
        return done.stdout

    def fetch(self, lock: str, folder: str) -> subprocess.CompletedProcess[str]:
        """Download the files of a lock in ``requirements``, by their hashes."""
        index, self._index = self._index, {}
        try:
            return self.run(
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--require-hashes",
                "-r",
                str(LOCKS / lock),
                "-d",
                folder,
            )
        finally:
            self._index = index

    def install(self, *what: str) -> None:
        self.expect("pip", "install", "--quiet", "--disable-pip-version-check", *what)


def the_one(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder with such a name."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Failed(f"{folder}: one {pattern} expected; got {[path.name for path in found]}")
    return found[0]

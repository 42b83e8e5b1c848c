"""The directory of a finished run: written completely or not at all.

``run.json``, ``scenario.yaml``, ``summary.json``, ``requests.parquet``, ``series.parquet``,
``events.parquet``, and last ``COMPLETE``: the SHA-256 of each, as ``sha256sum -c`` reads it. All files are
written to a neighboring directory, which is then renamed to the final path, or exchanged with the run there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from msgspec.json import format as json_layout

from kvcache_sim._core import Sha256
from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import InputOutputError, OutputExistsError
from kvcache_sim.base.file_lock import FileLock
from kvcache_sim.base.regular_files import exchange, open_regular
from kvcache_sim.base.stop_signals import stop_signals
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.tables import TableFile

COMPLETE = "COMPLETE"
#: Names of the files of a run directory, finished or not.
_WRITTEN = r"COMPLETE|\.lock|\.scratch|[\w-]+\.(?:json|jsonl|yaml|parquet)"
_EVERY_RUN = {
    "run.json",
    "scenario.yaml",
    "summary.json",
    *(f"{each}.parquet" for each in ("requests", "series", "events")),
}
_NUMBERED = r"(\d+)-.+-[0-9a-f]{6}"


class RunDirectory:
    """A run directory being written: ``claim`` it before the run, ``commit`` it after."""

    def __init__(self, target: Path, force: bool, disk: Disk = LOCAL_DISK) -> None:
        with _target_errors(target):  # a link stays: the run that it names is replaced
            target = target.resolve() if target.is_symlink() and target.is_dir() else target
        self.target = target
        self.force, self._disk = force, disk
        self.part = target.parent / f".{target.name}.part"
        self._lock: FileLock | None = None
        #: Names of the files that this run makes.
        self._names: list[str] = []

    def write(self, name: str, data: str | bytes) -> None:
        """Write one file of the directory; not visible before ``commit``."""
        with _target_errors(self.target), self.rows(name) as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def table(self, name: str, schema: Mapping[str, Column]) -> TableFile:
        """Return a table of the directory, to be written and closed before ``commit``."""
        self._names.append(f"{name}.parquet")
        with _target_errors(self.target):
            return TableFile(self.part / self._names[-1], schema)

    def rows(self, name: str) -> IO[bytes]:
        """Return a file of the directory that grows during the run; close it before ``commit``."""
        self._names.append(name)
        with _target_errors(self.target):
            return self._disk.create(self.part / name)

    def digest_of(self, name: str) -> str:
        """Return the SHA-256 in hex of a written file."""
        with _target_errors(self.target):
            return sha256_of(self.part / name)

    def scratch(self) -> IO[bytes]:
        """Return a nameless temporary file, deleted when it is closed or the process ends."""
        path = self.part / ".scratch"
        with _target_errors(self.target):
            file = path.open("w+b")
            path.unlink()
            return file

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a mapping as JSON, keys in their own order; ValueError for a number that is not finite."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)  # in C, as it does not indent
        self.write(name, json_layout(text, indent=2) + "\n")

    def commit(self) -> None:
        """Write the completeness marker and rename the directory to its target, replacing one if forced."""
        with _target_errors(self.target):
            names = sorted(path.name for path in self.part.iterdir() if path.name != ".lock")
            lines = [f"{sha256_of(self.part / name)}  {name}\n" for name in names]
            self.write(COMPLETE, "".join(lines))
            _check_target(self.target, self.force)
            if self.target.exists():
                self._replace()
            else:
                self._disk.replace(self.part, self.target)
            self._disk.remove(self.target / ".lock")
        if self._lock is not None:  # from here on the neighboring name belongs to the next run
            self._lock.close()
            self._lock = None

    def _replace(self) -> None:
        """Exchange the old run for the new one, and remove it."""
        # a process that is killed from here on leaves folders that the next run knows by their lock
        self._disk.create(self.target / ".lock").close()
        if exchange(self.part, self.target):
            self._disk.remove(self.part)
            return
        import tempfile

        # In two steps: a process that is killed between them leaves the old run under the new name.
        old = Path(tempfile.mkdtemp(prefix=f".{self.target.name}.", suffix=".old", dir=self.target.parent))
        self._disk.replace(self.target, old)
        self._disk.replace(self.part, self.target)
        self._disk.remove(old)

    def claim(self) -> None:
        """Refuse an existing target, then create and lock the neighboring directory for files."""
        _check_target(self.target, self.force)
        with _target_errors(self.target):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self._make_part()
            try:
                self._lock = FileLock(self.part / ".lock")
            except OutputExistsError as error:
                error.where = str(self.target)
                raise
            except FileNotFoundError:  # renamed by the run that was writing it
                raise OutputExistsError("the output exists", where=str(self.target)) from None
            except OSError:
                with contextlib.suppress(OSError):  # not locked, and so empty unless it was there before
                    self.part.rmdir()
                raise
        _check_target(self.target, self.force)  # another run may have finished meanwhile
        for stale in self.part.iterdir():  # of a run that was killed
            if stale.name != ".lock":
                self._disk.remove(stale)

    def _make_part(self) -> None:
        """Make the neighboring directory; one that exists is taken only if a run that was killed left it."""
        try:
            self._disk.make_folder(self.part)
        except FileExistsError:
            lock = self.part / ".lock"
            is_own = not self.part.is_symlink() and self.part.is_dir() and not lock.is_symlink()
            names = [path.name for path in self.part.iterdir()] if is_own else [""]
            if not names or (lock.is_file() and all(re.fullmatch(_WRITTEN, name) for name in names)):
                return
            raise OutputExistsError(
                "the name of the unfinished run is taken",
                where=str(self.part),
                hint="rename it, or use another -o",
            ) from None

    def release(self) -> None:
        """Remove uncommitted files; no effect after ``commit``."""
        if self._lock is not None:
            try:
                for name in (*self._names, ".lock"):  # without a descriptor: there may be none left
                    self._disk.remove(self.part / name)
                self._disk.remove(self.part)
            finally:
                self._lock.close()
                self._lock = None


@contextlib.contextmanager
def open_run_directory(target: Path, force: bool, disk: Disk = LOCAL_DISK) -> Iterator[RunDirectory]:
    """Claim ``target`` for a run; unless it is committed in the block, its files are removed.

    Raises OutputExistsError if the target exists (with ``force``: if it is no run directory),
    InputOutputError if it cannot be written.
    """
    directory = RunDirectory(target, force, disk)
    try:
        with _signals_wait():  # a signal between creation and lock would leave it behind
            directory.claim()
        yield directory
    finally:
        directory.release()


@contextlib.contextmanager
def open_numbered_directory(parent: Path, name: str, config_hash: str) -> Iterator[RunDirectory]:
    """Claim ``parent/<n>-<name>-<hash6>`` with the first n that no finished or active run has."""
    number = 0
    with contextlib.ExitStack() as stack:
        while True:
            number = max(number, _last_number(parent)) + 1
            target = parent / f"{number}-{name}-{config_hash[:6]}"
            try:
                directory = stack.enter_context(open_run_directory(target, force=False))
            except OutputExistsError:
                continue
            yield directory
            return


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set(stop_signals()))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _last_number(parent: Path) -> int:
    """Return the largest number of a run in a directory; 0 without runs."""
    try:
        numbers = [int(m[1]) for path in parent.iterdir() if (m := re.fullmatch(_NUMBERED, path.name))]
    except OSError:
        return 0
    return max(numbers, default=0)


def _check_target(target: Path, force: bool) -> None:
    with _target_errors(target):
        if not target.exists() and not target.is_symlink():
            return
        if not target.is_dir():
            raise OutputExistsError("the output is no directory", where=str(target))
        if not any(target.iterdir()):
            return
        if not force:
            raise OutputExistsError("the output exists", where=str(target), hint="--force replaces a run")
        if not (target / COMPLETE).exists():
            raise OutputExistsError(
                "not a run directory", where=str(target), hint="--force replaces finished runs only"
            )
        for path in target.iterdir():
            if path.name not in _own_names(target):
                raise OutputExistsError("not a file of the run", str(path), hint="--force keeps it: move it")


def _own_names(target: Path) -> set[str]:
    """Return the names of a finished run's files: those that its marker lists, and those of every run."""
    listed = (target / COMPLETE).read_text("utf-8", errors="replace").splitlines()
    return {COMPLETE, ".lock", *_EVERY_RUN, *(line.partition("  ")[2] for line in listed)}


@contextlib.contextmanager
def _target_errors(target: Path) -> Iterator[None]:
    """Turn an OSError into a one-line error with the output's name."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reason = error.strerror or str(error)
        raise InputOutputError("cannot be written", where=str(target), got=reason) from None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex; OSError when it cannot be read."""
    with open_regular(path) as file:
        digest = Sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
        return digest.hexdigest()

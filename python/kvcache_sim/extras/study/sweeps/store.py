"""The directory of a sweep: one sweep at a time, records whole or not at all, damaged ones set aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import InputOutputError, OutputExistsError
from kvcache_sim.base.file_lock import FileLock
from kvcache_sim.base.output import write_new
from kvcache_sim.base.regular_files import read_regular
from kvcache_sim.extras.study.sweeps.cell import CellRecord, canonical_json


def write_atomically(path: Path, data: bytes, disk: Disk = LOCAL_DISK) -> None:
    """Write a file under a temporary name and rename it: a reader sees the old file or the whole new one.

    Raises ``InputOutputError`` (disk full, permission) and leaves nothing half-written behind.
    """
    try:
        write_new(path, data, overwrite=True, disk=disk)
    except InputOutputError as error:
        error.hint = "what is finished is kept: make room and run the same command again"
        raise


class CellStore:
    """The ``cells/`` folder of a sweep: one checksummed JSON file a cell, the truth the tables are made from.

    No fsync: a file torn by a power cut fails its checksum, is set aside and its cell runs again.
    """

    def __init__(self, directory: Path, disk: Disk = LOCAL_DISK) -> None:
        self._disk = disk
        self.cells = directory / "cells"
        self.quarantine = directory / "quarantine"

    def create(self) -> None:
        """Make the folder; raises ``InputOutputError`` where that is not possible."""
        try:
            if not self.cells.is_dir():
                self._disk.make_folder(self.cells)
            for leftover in self.cells.glob(".*.tmp"):  # of a coordinator that was killed while writing
                self._disk.remove(leftover)
        except OSError as error:
            raise InputOutputError(
                f"cannot create: {error.strerror}", where=error.filename or str(self.cells)
            ) from error

    def save(self, record: CellRecord) -> None:
        """Write one record, replacing an earlier one of the same cell."""
        body = canonical_json(asdict(record))
        checksum = hashlib.sha256(body.encode()).hexdigest()
        text = f'{{"record":{body},"sha256":"{checksum}"}}\n'
        write_atomically(self.cells / f"{record.cell_id}.json", text.encode(), self._disk)

    def load(self, cell_ids: Iterable[str]) -> tuple[dict[str, CellRecord], list[str]]:
        """Return the sound records among ``cell_ids``, and the files that were set aside as damaged."""
        records, damaged = self.peek(cell_ids)
        return records, [str(self.set_aside(path)) for path in damaged]

    def peek(self, cell_ids: Iterable[str]) -> tuple[dict[str, CellRecord], list[Path]]:
        """Return the sound records among ``cell_ids`` and the damaged files; changes nothing."""
        records: dict[str, CellRecord] = {}
        damaged: list[Path] = []
        for cell_id in cell_ids:
            path = self.cells / f"{cell_id}.json"
            if not path.exists():
                continue
            record = _read(path, cell_id)
            if record is None:
                damaged.append(path)
            else:
                records[cell_id] = record
        return records, damaged

    def set_aside(self, path: Path) -> Path:
        """Move a damaged file into ``quarantine/`` under a free name and return the new path."""
        try:
            if not self.quarantine.is_dir():
                self._disk.make_folder(self.quarantine)
            number = 0
            while (target := self.quarantine / f"{path.name}.{number}").exists():
                number += 1
            self._disk.replace(path, target)
        except OSError as error:
            raise InputOutputError(f"cannot set aside: {error.strerror}", where=str(path)) from error
        return target


def _read(path: Path, cell_id: str) -> CellRecord | None:
    try:
        content = json.loads(read_regular(path))
        body = content["record"]
        if hashlib.sha256(canonical_json(body).encode()).hexdigest() != content["sha256"]:
            return None
        record = CellRecord(**body)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    except OSError as error:
        if not path.is_file():  # a folder, a pipe or a device: damaged
            return None
        raise InputOutputError(f"cannot read: {error.strerror}", where=str(path)) from error
    return record if record.cell_id == cell_id else None


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

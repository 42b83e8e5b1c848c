"""Batches of KV events on disk, written and read: one line of JSON each, without tokens, hashes salted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.base.output import refuse_existing
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent, Name, batch_of
from kvcache_sim.workload.imports.naming import salted_names
from kvcache_sim.workload.imports.source import json_line, lines_of, problem
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.readers.problems import located_errors, opened

_TYPES = {"stored": "BlockStored", "removed": "BlockRemoved", "cleared": "AllBlocksCleared"}


class Capture:
    """Writes batches as they arrive; the file is complete after each, and ``kvsim trace import`` reads it.

    OutputExistsError if the file exists without ``force``, InputOutputError if it cannot be written.
    """

    def __init__(self, path: Path, salt: bytes, force: bool) -> None:
        refuse_existing(path, force)
        try:
            self._file: IO[str] = path.open("w", encoding="utf-8")
        except OSError as error:
            raise InputOutputError("cannot be written", str(path), error.strerror or "") from None
        self.path, self._salt = path, salt
        self.batches = 0

    def add(self, source: str, batch: KvBatch) -> None:
        """Write a batch."""
        events = [self._event(event) for event in batch.events]
        row = {"ts": batch.at_ns / NS_PER_S, "source": source, "rank": batch.rank, "events": events}
        self._file.write(json.dumps(row) + "\n")
        self.batches += 1

    def _event(self, event: KvEvent) -> dict[str, object]:
        row: dict[str, object] = {"type": _TYPES[event.kind]}
        if event.kind != "cleared":
            row["block_hashes"] = [self._salted(name) for name in event.hashes]
            row["medium"] = event.medium
        if event.kind == "stored":
            row["parent_block_hash"] = None if event.parent is None else self._salted(event.parent)
            row["block_size"] = event.block_size
        row |= {"group_idx": event.group} if event.group else {}
        row |= {"session_id": self._salted(event.session)} if event.session else {}
        return row if event.placed else row | {"placed": False}

    def _salted(self, name: Name) -> int:
        return salted_names([str(name)], self._salt)[0]

    def flush(self) -> None:
        """Flush the file to disk."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Captured(NamedTuple):
    """A line of a capture: a batch of events, and the engine that sent it."""

    source: str
    batch: KvBatch


def captured(path: str) -> Iterator[Captured]:
    """Yield the batch of each line.

    Raises UsageError for a missing file, InputOutputError for an unreadable one, TraceError for a bad line.
    """
    source = opened(path, "capture")
    with located_errors(path):
        for number, text in lines_of(source):
            row = json_line(number, text)
            try:
                yield Captured(str(member(row, "source") or "engine"), batch_of(row))
            except ValueError as error:
                raise problem(
                    number, f"not a batch of KV events: {error}", text, "[date, events, rank]"
                ) from None

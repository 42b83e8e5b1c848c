"""Reads a finished run directory back, checking that it is whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcache_sim.errors import InputOutputError, UsageError
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.metrics.run_directory import COMPLETE, sha256_of
from kvcache_sim.metrics.tables import read_table


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run directory: its manifest and summary in memory, its tables read when asked for."""

    path: Path
    #: ``run.json``: versions, argv, seed, trace, digests, warnings.
    manifest: dict[str, Any]
    summary: dict[str, Any]
    #: ``scenario.yaml`` as text.
    scenario: str

    def requests(self) -> dict[str, ColumnData]:
        """Return the columns of ``REQUEST_COLUMNS``."""
        return self._table("requests")

    def series(self) -> dict[str, ColumnData]:
        """Return the columns of ``SERIES_COLUMNS``."""
        return self._table("series")

    def events(self) -> dict[str, ColumnData]:
        """Return the columns of ``EVENT_COLUMNS``."""
        return self._table("events")

    def prefixes(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``PREFIX_COLUMNS``; None where the run did not keep them."""
        return self._table("prefixes") if (self.path / "prefixes.parquet").exists() else None

    def _table(self, name: str) -> dict[str, ColumnData]:
        path = self.path / f"{name}.parquet"
        try:
            return read_table(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            reason = " ".join(str(error).split())[:120]
            raise InputOutputError("cannot be read", where=str(path), got=reason) from None


def load_run(path: Path) -> StoredRun:
    """Return a finished run.

    Raises UsageError where there is no finished run, InputOutputError when a file is not the one that the
    completeness marker names.
    """
    try:
        marker = (path / COMPLETE).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        hint = "give the directory that 'kvsim simulate' printed"
        raise UsageError("not a finished run", where=str(path), hint=hint) from None
    contents: dict[str, bytes] = {}
    for line in marker.splitlines():
        digest, _, name = line.partition("  ")
        try:
            if sha256_of(path / name) != digest:
                raise InputOutputError("is not what was written", where=str(path / name), hint="run it again")
            if not name.endswith(".parquet"):
                contents[name] = (path / name).read_bytes()
        except OSError as error:
            raise InputOutputError("cannot be read", str(path / name), got=str(error.strerror)) from None
    try:
        manifest, summary = (json.loads(contents[name]) for name in ("run.json", "summary.json"))
        return StoredRun(path, manifest, summary, contents["scenario.yaml"].decode())
    except (KeyError, ValueError):
        raise InputOutputError("not a run directory of this version", where=str(path)) from None

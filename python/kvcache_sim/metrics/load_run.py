"""Reads a finished run directory back, checking that it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcache_sim.errors import InputOutputError, UsageError
from kvcache_sim.metrics.columns import EVENT_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS, Column
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.metrics.run_directory import COMPLETE, sha256_of
from kvcache_sim.metrics.stored_checks import check_columns, read_members
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
        return self._table("requests", REQUEST_COLUMNS)

    def series(self) -> dict[str, ColumnData]:
        """Return the columns of ``SERIES_COLUMNS``."""
        return self._table("series", SERIES_COLUMNS)

    def events(self) -> dict[str, ColumnData]:
        """Return the columns of ``EVENT_COLUMNS``."""
        return self._table("events", EVENT_COLUMNS)

    def prefixes(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``PREFIX_COLUMNS``; None where the run did not keep them."""
        if not (self.path / "prefixes.parquet").exists():
            return None
        from kvcache_sim.metrics.prefix_entries import PREFIX_COLUMNS

        return self._table("prefixes", PREFIX_COLUMNS)

    def junctions(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``JUNCTION_COLUMNS``; None for a cache of one group."""
        if not (self.path / "junctions.parquet").exists():
            return None
        from kvcache_sim.metrics.cache_groups import JUNCTION_COLUMNS

        return self._table("junctions", JUNCTION_COLUMNS)

    def _table(self, name: str, schema: Mapping[str, Column]) -> dict[str, ColumnData]:
        path = self.path / f"{name}.parquet"
        try:
            columns = read_table(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            reason = " ".join(str(error).split())[:120]
            raise InputOutputError("cannot be read", where=str(path), got=reason) from None
        check_columns(columns, schema, path)
        return columns


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
        except ValueError:  # no name of a file holds a NUL
            raise InputOutputError(
                "not a list of files", where=str(path / COMPLETE), got=repr(line)[:60]
            ) from None
    try:
        manifest, summary = (
            read_members(contents[name], path / name) for name in ("run.json", "summary.json")
        )
        return StoredRun(path, manifest, summary, contents["scenario.yaml"].decode())
    except (KeyError, ValueError):
        raise InputOutputError("not a run directory of this version", where=str(path)) from None

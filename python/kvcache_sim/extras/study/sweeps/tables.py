"""The results of a sweep as tables: SQLite while it runs, Parquet and CSV when it ends."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.base.output import csv_field
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, canonical_json
from kvcache_sim.extras.study.sweeps.store import write_atomically
from kvcache_sim.metrics.batches import BATCHES
from kvcache_sim.metrics.names import flatten

_SCHEMA = """CREATE TABLE cells (cell INTEGER PRIMARY KEY, cell_id TEXT, repeat INTEGER, settings TEXT,
status TEXT, error TEXT, summary TEXT, elapsed_s REAL, attempts INTEGER)"""
_COMMIT_EVERY_S = 0.5

Row = dict[str, object]


class LiveTable:
    """``results.sqlite``: a row a cell as it finishes, to read during the sweep; the coordinator writes it.

    It is rebuilt from the records at every start, so it needs no recovery; a damaged one is set aside first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, list[Cell]] = {}
        self._committed_s = 0.0
        try:
            self._database = sqlite3.connect(path)
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute("DROP TABLE IF EXISTS cells")
            self._database.execute(_SCHEMA)
            self._database.commit()
        except sqlite3.Error as error:
            raise InputOutputError(f"cannot write: {error}", where=str(path)) from error

    def expect(self, cells: Sequence[Cell]) -> None:
        """Take the rows that later records answer."""
        for cell in cells:
            self._rows.setdefault(cell.cell_id, []).append(cell)

    def add(self, record: CellRecord) -> None:
        """Store a record under every row of the plan it answers; raises ``InputOutputError``."""
        summary = canonical_json(record.summary)
        rows = [
            (
                cell.index,
                cell.cell_id,
                cell.repeat,
                canonical_json(dict(cell.settings)),
                record.status,
                record.error,
                summary,
                record.elapsed_s,
                record.attempts,
            )
            for cell in self._rows.get(record.cell_id, ())
        ]
        try:
            self._database.executemany(
                "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            if time.monotonic() - self._committed_s > _COMMIT_EVERY_S:
                self._database.commit()
                self._committed_s = time.monotonic()
        except sqlite3.Error as error:
            raise InputOutputError(f"cannot write: {error}", where=str(self._path)) from error

    def __enter__(self) -> LiveTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._database.commit()
        except sqlite3.Error as problem:
            if error is None:
                raise InputOutputError(f"cannot write: {problem}", where=str(self._path)) from problem
        finally:
            self._database.close()


def is_sound_database(path: Path) -> bool:
    """Return True if a SQLite file opens and passes SQLite's own check; an absent one is sound."""
    if not path.exists():
        return True
    try:
        database = sqlite3.connect(path)
        try:
            return bool(database.execute("PRAGMA quick_check").fetchone()[0] == "ok")
        finally:
            database.close()
    except sqlite3.Error:
        return False


def result_rows(cells: Sequence[Cell], records: Mapping[str, CellRecord]) -> list[Row]:
    """Return the table of a study: a row a cell in plan order, the same keys in every row.

    Columns: ``cell``, ``cell_id``, ``repeat``, ``status``, ``error``, each setting as ``set.NAME``, each
    number of the summary but ``wall.*``, which depends on the machine; ``batches`` comes last.
    """
    settings: dict[str, None] = {}
    metrics: dict[str, None] = {}
    flat: dict[str, dict[str, object]] = {}
    for cell in cells:
        settings.update(dict.fromkeys(cell.settings))
        record = records.get(cell.cell_id)
        if record is not None and cell.cell_id not in flat:
            leaves = flatten({k: v for k, v in record.summary.items() if k not in ("wall", BATCHES)})
            flat[cell.cell_id] = leaves
            metrics.update(dict.fromkeys(flat[cell.cell_id]))
    rows = []
    for cell in cells:
        record = records.get(cell.cell_id)
        row: Row = {
            "cell": cell.index,
            "cell_id": cell.cell_id,
            "repeat": cell.repeat,
            "status": record.status if record else "missing",
            "error": record.error if record else "",
        }
        row |= {f"set.{name}": cell.settings.get(name) for name in settings}
        row |= {name: flat.get(cell.cell_id, {}).get(name) for name in sorted(metrics)}
        row[BATCHES] = record.summary.get(BATCHES) if record else None
        rows.append(row)
    return rows


def export(rows: Sequence[Row], directory: Path, disk: Disk = LOCAL_DISK) -> None:
    """Write ``results.csv`` and ``results.parquet``, each whole or not at all; equal rows, equal bytes."""
    write_atomically(directory / "results.csv", _csv_bytes(rows), disk)
    write_atomically(directory / "results.parquet", _parquet_bytes(rows), disk)


def _column_names(rows: Sequence[Row]) -> list[str]:
    return [name for name in rows[0] if name != BATCHES] if rows else []


def _csv_bytes(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = _column_names(rows)
    if rows:
        writer.writerow(map(csv_field, names))
    for row in rows:
        writer.writerow([csv_field(_plain(row[name])) for name in names])
    return text.getvalue().encode()


def _plain(value: object) -> object:
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, dict, bool)) else value


def arrow_rows(rows: Sequence[Row]) -> Any:
    """Return rows as a ``pyarrow.Table``, each column of one type."""
    import pyarrow as pa

    return pa.table({name: _column([row[name] for row in rows]) for name in _column_names(rows)})


def _parquet_bytes(rows: Sequence[Row]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(arrow_rows(rows), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def _column(values: list[object]) -> list[object]:
    """Return values of one type: mixed ones become text, integers mixed with floats become floats."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} and all(-(2**63) <= int(str(v)) < 2**63 for v in values if v is not None):
        return values
    if kinds <= {float} or kinds <= {bool} or kinds <= {str}:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(str(value)) for value in values]
    return [None if value is None else str(_plain(value)) for value in values]

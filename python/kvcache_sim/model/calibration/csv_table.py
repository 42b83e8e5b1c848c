"""A CSV of measurements, row by row: whole rows, the columns asked for, numbers that can be."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvcache_sim.errors import TraceError, UsageError

#: Above these a number is no measurement: tokens or sequences of one step, KV tokens, times in ms or µs.
LARGEST_STEP = 2**22
LARGEST_KV = 2**40
LARGEST_TIME = 1e12


def table_rows(
    path: Path, needed: tuple[str, ...], only: Mapping[str, str]
) -> Iterator[tuple[dict[str, str], str]]:
    """Yield (row, place) of a CSV, plain or gzip: the rows that have the values in ``only``.

    Raises UsageError for a missing file, TraceError with file and line for a column that is needed or
    filtered by and absent, and for a row of fewer or more cells than there are columns.
    """
    reader = csv.DictReader(io.StringIO(_text(path)))
    names = reader.fieldnames or []
    for name in (*needed, *only):
        if name not in names:
            raise TraceError(f"no column {name}", where=f"{path}:1", got=", ".join(names) or "an empty file")
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if None in row or None in row.values():
            what = "row cut short" if None in row.values() else "row with too many cells"
            raise TraceError(what, where, expected=f"{len(names)} cells, one a column")
        if all(row[key] == value for key, value in only.items()):
            yield row, where


def column_values(path: Path, columns: tuple[str, ...], only: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the values that each column takes in the rows chosen by ``only``; absent columns take none."""
    found: dict[str, set[str]] = {column: set() for column in columns}
    for row, _ in table_rows(path, (), only):
        for column in columns:
            if row.get(column):
                found[column].add(row[column])
    return found


def count(text: str | None, name: str, where: str, default: int = 0) -> float:
    """Return a whole number ≥ 0, ``default`` where nothing is written; raises as ``number`` does."""
    value = number(text, name, where, default)
    largest = LARGEST_KV if "kv" in name else LARGEST_STEP
    if value != int(value) or value > largest:
        raise TraceError(f"{name} must be a whole number ≤ {largest:,}", where=where, got=repr(text))
    return value


def number(text: str | None, name: str, where: str, default: float = 0.0) -> float:
    """Return a finite number ≥ 0, ``default`` where nothing is written; TraceError naming ``where`` else."""
    if text is None or text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise TraceError(f"{name} must be a number ≥ 0", where=where, got=repr(text))
    return value


def time(text: str | None, name: str, where: str) -> float:
    """Return a time above 0; TraceError naming ``where`` otherwise."""
    value = number(text, name, where)
    if not 0 < value <= LARGEST_TIME:
        raise TraceError(f"{name} must be above 0 and below {LARGEST_TIME:g}", where=where, got=repr(text))
    return value


def _text(path: Path) -> str:
    """Return a file's text, unpacked when it is gzip; UsageError or TraceError when it cannot be."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError("file not found", where=str(path)) from None
    except IsADirectoryError:
        raise UsageError("not a file but a folder", where=str(path)) from None
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(f"not a CSV file: {error}", where=str(path)) from None

"""Columns of a CSV of measurements, with checks of rows and numbers."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError, UsageError

#: Larger numbers are refused: tokens or sequences of one step, KV tokens, times in ms or µs.
LARGEST_STEP = 2**22
LARGEST_KV = 2**40
LARGEST_TIME = 1e12


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The selected rows of a CSV in columns of text, with the line of each."""

    path: Path
    lines: list[int]
    cells: Mapping[str, list[str]]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lines)

    def location(self, row: int) -> str:
        """Return ``file:line`` of a row."""
        return f"{self.path}:{self.lines[row]}"

    def numbers(self, name: str, default: float = 0.0) -> NDArray[np.float64]:
        """Return a column of finite numbers ≥ 0, ``default`` for an absent column or an empty cell.

        Raises TraceError with the location of the first invalid number.
        """
        cells = self.cells.get(name)
        if cells is None:
            return np.full(len(self), float(default))
        try:
            values = np.array([float(cell) if cell else default for cell in cells], np.float64)
        except ValueError:
            values = np.array([_number_or_nan(cell) if cell else default for cell in cells], np.float64)
        self._check(name, (values >= 0) & (values < np.inf), "a number ≥ 0")
        return values

    def counts(self, name: str, default: int = 0) -> NDArray[np.float64]:
        """Return a column of whole numbers ≥ 0; raises as ``numbers``."""
        values = self.numbers(name, default)
        largest = LARGEST_KV if "kv" in name else LARGEST_STEP
        whole = (values == np.floor(values)) & (values <= largest)
        self._check(name, whole, f"a whole number ≤ {largest:,}")
        return values

    def times(self, name: str) -> NDArray[np.float64]:
        """Return a column of times above 0; raises as ``numbers``."""
        values = self.numbers(name)
        self._check(name, (values > 0) & (values <= LARGEST_TIME), f"above 0 and below {LARGEST_TIME:g}")
        return values

    def take(self, chosen: NDArray[np.bool_]) -> CsvTable:
        """Return the selected rows."""
        return CsvTable(
            self.path,
            list(compress(self.lines, chosen)),
            {name: list(compress(cells, chosen)) for name, cells in self.cells.items()},
        )

    def _check(self, name: str, good: NDArray[np.bool_], what: str) -> None:
        if not good.all():
            row = int(np.argmin(good))
            raise TraceError(
                f"{name} must be {what}", where=self.location(row), got=repr(self.cells[name][row])
            )


def read_table(path: Path, needed: tuple[str, ...], only: Mapping[str, str]) -> CsvTable:
    """Return the rows of a CSV, plain or gzip, that have the values in ``only``.

    Raises UsageError for a missing file, TraceError with file and line for an absent column that is needed or
    filtered by, and for a row with fewer or more cells than there are columns.
    """
    names, rows, lines = _parsed(path, _state(path))
    for name in (*needed, *only):
        if name not in names:
            raise TraceError(f"no column {name}", where=f"{path}:1", got=", ".join(names) or "an empty file")
    if only:
        values = itemgetter(*(names.index(name) for name in only))
        wanted = tuple(only.values()) if len(only) > 1 else next(iter(only.values()))
        chosen = [values(row) == wanted for row in rows]
        rows, lines = list(compress(rows, chosen)), list(compress(lines, chosen))
    return CsvTable(path, lines, {name: [row[at] for row in rows] for at, name in enumerate(names)})


def column_values(path: Path, columns: tuple[str, ...], only: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the values of each column in the rows selected by ``only``; absent columns have none."""
    cells = read_table(path, (), only).cells
    return {column: {cell for cell in cells.get(column, ()) if cell} for column in columns}


def _number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


#: Content of a file: its column names, its rows, the line of each row.
_Parsed = tuple[list[str], list[list[str]], list[int]]


class _FileState(NamedTuple):
    """The state of a file: another one once it has changed."""

    modified_ns: int
    size_bytes: int


# Sets are fitted one after another to rows of the same few files.
@lru_cache(maxsize=2)
def _parsed(path: Path, state: _FileState) -> _Parsed:
    reader = csv.reader(io.StringIO(_text(path)))
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        names = next(reader, [])
        width = len(names)
        for row in reader:
            if len(row) == width:
                lines.append(reader.line_num)
                rows.append(row)
            elif row:
                what = "row cut short" if len(row) < width else "row with too many cells"
                where = f"{path}:{reader.line_num}"
                raise TraceError(what, where, expected=f"{width} cells, one a column")
    except csv.Error as error:
        raise TraceError(f"not a CSV file: {error}", where=f"{path}:{reader.line_num}") from None
    return names, rows, lines


def _state(path: Path) -> _FileState:
    """Return a file's modification time and size; UsageError if there is no such file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise UsageError("file not found", where=str(path)) from None
    return _FileState(found.st_mtime_ns, found.st_size)


def _text(path: Path) -> str:
    """Return a file's text, unpacked if it is gzip; UsageError or TraceError if it cannot be read."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError("file not found", where=str(path)) from None
    except IsADirectoryError:
        raise UsageError("not a file but a folder", where=str(path)) from None
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"not a CSV file: {error}", where=str(path)) from None

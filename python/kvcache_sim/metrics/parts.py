"""A table in parts: writers read one part after another, access to a column returns all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.run import CodedText, ColumnData

#: Rows that are written, counted and digested at a time; a table written during a run holds as many.
GROUP_ROWS = 1 << 12

#: The columns of some rows; the words of an earlier part's CodedText are the first of a later part's.
Part = Mapping[str, ColumnData]


class Parts(Mapping[str, ColumnData]):
    """The columns of a table whose rows are computed on access, a part at a time.

    Cost: each iteration over the parts computes them again; columns are kept after the first access.
    """

    def __init__(self, names: tuple[str, ...], make: Callable[[], Iterator[Part]]) -> None:
        self._names = names
        self._make = make
        self._columns: dict[str, ColumnData] | None = None

    def parts(self) -> Iterator[Part]:
        """Yield the rows in their order."""
        return self._make()

    def __getitem__(self, name: str) -> ColumnData:
        """Return one whole column."""
        if self._columns is None:
            parts = list(self._make())
            self._columns = {column: joined([part[column] for part in parts]) for column in self._names}
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the columns."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._names)


def parts_of(columns: Part) -> Iterable[Part]:
    """Return the parts of a table; a table without parts is one part."""
    return columns.parts() if isinstance(columns, Parts) else (columns,)


def joined(pieces: list[ColumnData]) -> ColumnData:
    """Return one column of several pieces."""
    if len(pieces) == 1:
        return pieces[0]
    last = pieces[-1]
    if isinstance(last, CodedText):
        codes = [piece.codes for piece in pieces if isinstance(piece, CodedText)]
        return CodedText(np.concatenate(codes), last.words)
    return np.concatenate([piece for piece in pieces if not isinstance(piece, CodedText)])


def arrays_of(part: Part) -> dict[str, NDArray[Any]]:
    """Return the columns that are numbers."""
    return {name: column for name, column in part.items() if isinstance(column, np.ndarray)}


def rows_of(column: ColumnData) -> int:
    """Return the number of rows of a column."""
    return len(column.codes if isinstance(column, CodedText) else column)


def cut(column: ColumnData, start: int, stop: int) -> ColumnData:
    """Return a column's rows from ``start`` to before ``stop``."""
    if isinstance(column, CodedText):
        return CodedText(column.codes[start:stop], column.words)
    return column[start:stop]

"""Columns in memory to Parquet and back. The core writes; pyarrow is imported only to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from kvcache_sim import _core
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.parts import GROUP_ROWS, Part, cut, joined, parts_of, rows_of
from kvcache_sim.metrics.run import CodedText, ColumnData


class TableFile:
    """A Parquet table written a row group at a time, in a schema's order and types.

    Closed at the end of its block. OSError if it cannot be written. Equal rows give equal bytes for any
    split into parts. Cost: one row group in memory. The file's metadata has each column's meaning
    (``meaning.<column>``).
    """

    def __init__(self, path: Path, schema: Mapping[str, Column]) -> None:
        self.schema = schema
        columns = [(name, column.dtype, column.meaning) for name, column in schema.items()]
        self._table = _core.TableWriter(path, columns)
        self._waiting: list[Part] = []
        self._rows = 0

    def write(self, columns: Part) -> None:
        """Add rows; KeyError for a missing column of the schema."""
        part = {name: columns[name] for name in self.schema}
        self._waiting.append(part)
        self._rows += rows_of(part[next(iter(self.schema))])
        if self._rows >= GROUP_ROWS:
            whole = self._rows // GROUP_ROWS * GROUP_ROWS
            left = self._write_groups(whole)
            self._rows -= whole
            self._waiting = [left] if self._rows else []  # columns without rows would keep those of the group

    def write_all(self, columns: Mapping[str, ColumnData]) -> None:
        """Add all rows of a table, part by part if it has parts."""
        for part in parts_of(columns):
            self.write(part)

    def _write_groups(self, rows: int) -> Part:
        """Write full groups of the waiting rows; return the others."""
        columns = {name: joined([part[name] for part in self._waiting]) for name in self.schema}
        for start in range(0, rows, GROUP_ROWS):
            stop = min(start + GROUP_ROWS, rows)
            cells = [
                _cells(cut(columns[name], start, stop), described.dtype)
                for name, described in self.schema.items()
            ]
            self._table.write(stop - start, cells)
        return {name: cut(column, rows, self._rows) for name, column in columns.items()}

    def close(self) -> None:
        """Write the last rows and the table's end."""
        if self._rows:
            self._write_groups(self._rows)
        self._table.close()

    def __enter__(self) -> TableFile:
        """Return the table."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the table, unless the block failed: then it has no footer and no reader accepts it."""
        if kind is None:
            self.close()


def write_table(path: Path, columns: Mapping[str, ColumnData], schema: Mapping[str, Column]) -> None:
    """Write columns as Parquet, in the schema's order and types; raises as ``TableFile`` does."""
    with TableFile(path, schema) as table:
        table.write_all(columns)


def read_table(path: Path) -> dict[str, ColumnData]:
    """Return the columns of a Parquet file that ``write_table`` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [field.name for field in pq.read_schema(path) if pa.types.is_string(field.type)]
    table = pq.read_table(path, use_threads=False, read_dictionary=texts)
    columns: dict[str, ColumnData] = {}
    for name in table.column_names:
        chunked = table.column(name)
        if pa.types.is_dictionary(chunked.type):
            array = chunked.unify_dictionaries().combine_chunks()
            codes = np.asarray(array.indices.to_numpy(zero_copy_only=False), np.int32)
            columns[name] = CodedText(codes, tuple(array.dictionary.to_pylist()))
        else:
            columns[name] = chunked.to_numpy()
    return columns


def read_groups(path: Path) -> Iterator[Part]:
    """Yield the columns of each row group of a file without texts that ``TableFile`` wrote."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            yield {name: table.column(name).to_numpy() for name in table.column_names}


def _cells(column: ColumnData, dtype: str) -> object:
    """Return rows of a column in the core's format: an array, or codes and words."""
    if isinstance(column, CodedText):
        return column.codes.astype(np.int32, copy=False), column.words
    return column.astype(dtype, copy=False)

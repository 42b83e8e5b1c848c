"""Columns in memory to Parquet and back. The core writes; pyarrow is imported only to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.run import CodedText, ColumnData

#: Rows of a row group: what a table that is written as it comes holds in memory.
GROUP_ROWS = 1 << 16


class TableFile:
    """A Parquet table being written a row group at a time, in a schema's order and types.

    Closed when its block ends. OSError where it cannot be written. Equal groups give equal bytes. Cost: one
    column of one group in memory. The file's metadata holds each column's meaning as ``meaning.<column>``.
    """

    def __init__(self, path: Path, schema: Mapping[str, Column]) -> None:
        self.schema = schema
        columns = [(name, column.dtype, column.meaning) for name, column in schema.items()]
        self._table = _core.TableWriter(path, columns)

    def write(self, columns: Mapping[str, ColumnData]) -> None:
        """Write rows, ``GROUP_ROWS`` to a group; KeyError for a column of the schema that is not there."""
        ordered = [columns[name] for name in self.schema]
        rows = len(_numbers(ordered[0]))
        for start in range(0, rows, GROUP_ROWS):
            part = slice(start, min(start + GROUP_ROWS, rows))
            cells = [_cells(c, d.dtype, part) for c, d in zip(ordered, self.schema.values(), strict=True)]
            self._table.write(part.stop - start, cells)

    def close(self) -> None:
        """Write the table's end."""
        self._table.close()

    def __enter__(self) -> TableFile:
        """Return the table."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the table, unless the block failed: then it stays without an end and no reader takes it."""
        if kind is None:
            self.close()


def write_table(path: Path, columns: Mapping[str, ColumnData], schema: Mapping[str, Column]) -> None:
    """Write columns as Parquet, in the schema's order and types; raises as ``TableFile`` does."""
    with TableFile(path, schema) as table:
        table.write(columns)


def read_table(path: Path) -> dict[str, ColumnData]:
    """Return the columns of a Parquet file that ``write_table`` wrote, as they were in memory."""
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


def _numbers(column: ColumnData) -> NDArray[Any]:
    return column.codes if isinstance(column, CodedText) else column


def _cells(column: ColumnData, dtype: str, part: slice) -> object:
    """Return the rows of a part as the core takes them: an array, or codes and words."""
    if isinstance(column, CodedText):
        return column.codes[part].astype(np.int32, copy=False), column.words
    return column[part].astype(dtype, copy=False)

"""Columns in memory to Parquet and back. pyarrow is imported here only, when a table is written or read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.run import CodedText, ColumnData


def write_table(path: Path, columns: Mapping[str, ColumnData], schema: Mapping[str, Column]) -> None:
    """Write columns as Parquet with zstd, in the schema's order and types; OSError when it cannot.

    Raises KeyError for a column of the schema that is not there. Equal columns give equal bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [_to_arrow(pa, columns[name], column.dtype) for name, column in schema.items()]
    fields = [
        pa.field(name, array.type, metadata={"meaning": schema[name].meaning})
        for name, array in zip(schema, arrays, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    pq.write_table(table, path, compression="zstd", compression_level=1, write_statistics=False)


def read_table(path: Path) -> dict[str, ColumnData]:
    """Return the columns of a Parquet file that ``write_table`` wrote, as they were in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path, use_threads=False)
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


def _to_arrow(pa: Any, column: ColumnData, dtype: str) -> Any:
    """Return a column as an Arrow array over its own memory; ``pa.array`` would first import ``numpy.ma``."""
    if isinstance(column, CodedText):
        words = pa.array(column.words, pa.string())
        return pa.DictionaryArray.from_arrays(_to_arrow(pa, column.codes, "int32"), words)
    values = np.ascontiguousarray(column, dtype)
    packed = np.packbits(values, bitorder="little") if dtype == "bool" else values
    buffers = [None, pa.py_buffer(packed)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)

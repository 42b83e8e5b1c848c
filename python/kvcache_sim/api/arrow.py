"""Columns of a run as an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.run import CodedText, ColumnData


def arrow_table(columns: Mapping[str, ColumnData], schema: Mapping[str, Column]) -> Any:
    """Return a ``pyarrow.Table`` with the columns of a schema that are there, each with its ``meaning``.

    Numbers are not copied where their type is the schema's; text is dictionary-coded.
    """
    import pyarrow as pa

    names = [name for name in schema if name in columns]
    arrays = [_array(columns[name], schema[name].dtype) for name in names]
    fields = [
        pa.field(name, array.type, nullable=False, metadata={"meaning": schema[name].meaning})
        for name, array in zip(names, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _array(column: ColumnData, dtype: str) -> Any:
    import pyarrow as pa

    if isinstance(column, CodedText):
        codes = pa.array(column.codes.astype(np.int32, copy=False))
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(column.words), pa.string()))
    return pa.array(column.astype(dtype, copy=False))


def with_words(table: Any, words: Mapping[str, tuple[str, ...]]) -> Any:
    """Return a table with its columns of indices replaced by their words."""
    import pyarrow as pa

    for name, meanings in words.items():
        if name in table.column_names:
            column = table.column_names.index(name)
            codes = table.column(name).combine_chunks().cast(pa.int32())
            coded = pa.DictionaryArray.from_arrays(codes, pa.array(list(meanings), pa.string()))
            table = table.set_column(column, name, coded)
    return table

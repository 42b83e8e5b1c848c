"""Traces in Parquet: a column ``hash_ids`` of integers, and columns named as Mooncake's members."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError
from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.json_rows import MOONCAKE, MOONCAKE_ROWS, fitting_block, raw_settings

if TYPE_CHECKING:
    from kvcache_sim._core import IdLists, RawColumns, RowBatch, TraceRows, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: First bytes of a Parquet file.
MAGIC = b"PAR1"
#: Columns of integers in the order of the core; times are in ms, as Mooncake's.
TIMES = ("timestamp", "delay", "abort_after")
NUMBERS = (
    "timestamp", "delay", "input_length", "output_length", "turn", "is_conversational_turn", "after",
    "history_length", "priority", "named_length", "abort_after",
)  # fmt: skip
#: Metadata of a file: tokens per id.
BLOCK_SIZE_KEY = b"kvsim.block_size"
#: The column of members that have none, as JSON.
MEMBERS = "members"
#: The number of a row that lacks it.
_ABSENT = -(1 << 63)
#: Block ids read together, and rows that determine the block size.
_BATCH_IDS, _FIRST_ROWS = 1 << 18, 256


def parquet_format(path: str) -> TraceFormat:
    """Return the format of one Parquet file, which is read from its path."""
    file = _file(path)
    with _undamaged(path):
        stated = (file.schema_arrow.metadata or {}).get(BLOCK_SIZE_KEY, b"")
    stated_size = int(stated) if stated.isdigit() and int(stated) > 0 else 0

    def block(_: bytes, settings: ReadSettings) -> int:
        del settings
        rows: list[dict[str, Any]] = []
        with _undamaged(path):
            if not stated_size and {"hash_ids", "input_length"} <= set(file.schema_arrow.names):
                batches = file.iter_batches(_FIRST_ROWS, columns=["hash_ids", "input_length"])
                rows = next(batches).to_pylist() if file.metadata.num_rows else []
        head = "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()
        return stated_size or fitting_block(head, MOONCAKE.block_size)

    def rows(source: TraceSource, settings: ReadSettings) -> TraceRows:
        from kvcache_sim._core import TraceRows

        raw = raw_settings(settings, settings.block_size or block(b"", settings))
        return TraceRows.of_batches(source, MOONCAKE_ROWS, raw, _batches(path, settings.keeps_members))

    def read(source: TraceSource, settings: ReadSettings) -> RawColumns:
        from kvcache_sim._core import TraceSource

        del source  # read by its path, for its digest afterwards
        whole = rows(TraceSource(path), settings)
        whole.read(1 << 62)
        columns = whole.finish()[0]
        columns["block_size"] = settings.block_size or block(b"", settings)
        return columns

    what = "Parquet: hash_ids (a list of integers) and Mooncake's members"
    return TraceFormat(
        "parquet",
        what,
        lambda head: head.startswith(MAGIC),
        read,
        stated_size or MOONCAKE.block_size,
        block,
        rows,
        numbers_turns=lambda _: "turn" in file.schema_arrow.names or "delay" not in file.schema_arrow.names,
    )


def _file(path: str) -> Any:
    import pyarrow.parquet as pq

    if path == "standard input":
        raise TraceError("Parquet from a pipe", where=path, expected="a file: its end is read first")
    with _undamaged(path):
        return pq.ParquetFile(path, memory_map=True, pre_buffer=False)


@contextmanager
def _undamaged(path: str) -> Iterator[None]:
    """Raise ``TraceError`` for data that pyarrow cannot read, names that are not UTF-8 among them."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's: of the file, not of its data
        raise TraceError("damaged Parquet data", where=path, got=str(error).splitlines()[0][:120]) from None


def _batches(path: str, members: bool) -> Iterator[RowBatch]:
    """Yield the rows as columns; raises ``TraceError``."""
    file = _file(path)
    with _undamaged(path):
        names, meta = file.schema_arrow.names, file.metadata
        others = [name for name in (*NUMBERS, "session_id") if name in names]
        others += [MEMBERS] if members and MEMBERS in names else []
        wanted = [*others, *(["hash_ids"] if "hash_ids" in names else [])]
        leaf = _packed_column(file) if others else None
        groups = list(range(meta.num_row_groups))
        size, stored, done = 0, os.path.getsize(path), 0
        for group in [groups] if leaf is None else [[k] for k in groups]:
            ids = None if leaf is None else _packed(path, file, group[0], leaf)
            size = size or (0 if ids else _fitting_rows(file))
            rows, columns = (max(1, meta.row_group(group[0]).num_rows), others) if ids else (size, wanted)
            for batch in file.iter_batches(rows, group, columns=columns, use_threads=False):
                done += len(batch)
                yield _columns(path, batch, min(stored, stored * done // max(1, meta.num_rows)), ids)


def _chunk(file: Any, group: int, leaf: int) -> Any:
    """Return the metadata of the ids of a row group.

    A first row is read before: pyarrow ends the process over damaged metadata of a chunk that was not read.
    """
    next(file.iter_batches(1, [group], columns=["hash_ids"], use_threads=False), None)
    return file.metadata.row_group(group).column(leaf)


def _fitting_rows(file: Any) -> int:
    """Return the rows with about ``_BATCH_IDS`` ids."""
    leaves = [k for k in range(len(file.schema)) if file.schema.column(k).path.startswith("hash_ids.")]
    groups = range(file.metadata.num_row_groups)
    ids: int = sum(_chunk(file, group, leaf).num_values for group in groups for leaf in leaves)
    rows: int = file.metadata.num_rows
    return min(max(1, _BATCH_IDS * rows // max(1, ids)), 1 << 16)


def _packed_column(file: Any) -> int | None:
    """Return the number of the column of ids if it has the types that the core reads by itself."""
    lists = [field.type for field in file.schema_arrow if field.name == "hash_ids"]
    values = getattr(lists[0], "value_field", None) if lists else None
    if values is None or values.nullable:
        return None
    for k, column in enumerate(map(file.schema.column, range(len(file.schema)))):
        if column.path == "hash_ids.list.element":
            levels = (column.max_definition_level, column.max_repetition_level, column.physical_type)
            return k if levels == (2, 1, "INT64") else None
    return None


def _packed(path: str, file: Any, group: int, leaf: int) -> IdLists | None:
    """Return the ids of a row group if they are packed differences of integers from 0 on."""
    from kvcache_sim._core import IdLists

    chunk = _chunk(file, group, leaf)
    least = chunk.statistics.min if chunk.statistics and chunk.statistics.has_min_max else -1
    if least < 0 or chunk.compression not in ("SNAPPY", "UNCOMPRESSED") or chunk.has_dictionary_page:
        return None
    begin, size = chunk.data_page_offset, chunk.total_compressed_size
    if not 0 <= begin <= begin + size <= os.path.getsize(path):
        return None
    with open(path, "rb") as raw:
        raw.seek(begin)
        pages = raw.read(size)
    return IdLists.of_chunk(pages, chunk.compression == "SNAPPY", file.metadata.row_group(group).num_rows)


def _columns(path: str, batch: Any, end_bytes: int, ids: IdLists | None) -> RowBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return {
        "numbers": [_numbers(path, name, columns.get(name)) for name in NUMBERS],
        "ids": ids or _ids(path, columns.get("hash_ids"), len(batch)),
        "sessions": _texts(path, "session_id", columns.get("session_id")),
        "extra": _members(path, columns.get(MEMBERS)),
        "bytes": end_bytes,
    }


def _texts(path: str, name: str, column: Any) -> list[str | None]:
    """Return a column of text, as older writers' bytes too; a session may be an integer."""
    import pyarrow as pa

    if column is None:
        return []
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    is_text = is_bytes or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if not (is_text or (name != MEMBERS and pa.types.is_integer(kind))):
        expected = "text" if name == MEMBERS else "text or integers"
        raise TraceError(f"{name} of another type", where=path, got=str(column.type), expected=expected)
    given = column.to_pylist()
    return [value if value is None else value.decode() if is_bytes else str(value) for value in given]


def _members(path: str, column: Any) -> list[str | None]:
    """Return each row's other members, as JSON without its braces."""
    texts = _texts(path, MEMBERS, column)
    for text in filter(None, texts):
        try:
            json.loads(f"{{{text}}}")
        except (ValueError, RecursionError):
            expected = "members of a JSON object"
            raise TraceError(f"{MEMBERS} is no JSON", where=path, got=text[:60], expected=expected) from None
    return texts


def _ids(path: str, column: Any, rows: int) -> IdLists:
    import pyarrow as pa

    from kvcache_sim._core import IdLists

    if column is None:
        return IdLists.of_values(np.zeros(rows + 1, np.int64), np.empty(0, np.uint64))
    values = column.values if isinstance(column, pa.ListArray | pa.LargeListArray) else None
    if values is None or not pa.types.is_integer(values.type) or values.null_count:
        raise TraceError("hash_ids of another type", where=path, got=str(column.type), expected="list<int64>")
    ids = values.to_numpy()
    if values.type != pa.uint64() and len(ids) and ids.min() < 0:
        raise TraceError("a block id below 0", where=path, got=str(ids.min()), expected="0 or more")
    ids = ids.view(np.uint64) if ids.dtype == np.int64 else ids.astype(np.uint64, copy=False)
    return IdLists.of_values(column.offsets.to_numpy().astype(np.int64, copy=False), ids)


def _buffers(column: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Return which rows have a number, and the numbers, 0 for the others, without ``pyarrow.compute``."""

    def bits(buffer: Any) -> NDArray[np.bool_]:
        return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little").astype(np.bool_)

    valid, data = column.buffers()
    rows = slice(column.offset, column.offset + len(column))
    given = np.ones(len(column), np.bool_) if valid is None else bits(valid)[rows]
    is_bool = str(column.type) == "bool"
    values = bits(data) if is_bool else np.frombuffer(data, column.type.to_pandas_dtype())
    return given, np.where(given, values[rows], 0)


def _numbers(path: str, name: str, column: Any) -> NDArray[np.int64]:
    """Return a column of integers, times in ns; empty if no row has one."""
    import pyarrow as pa

    if column is None or column.null_count == len(column):
        return np.empty(0, np.int64)
    kind = column.type
    is_time = name in TIMES
    if not (
        pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (is_time and pa.types.is_floating(kind))
    ):
        expected = "a number of ms" if is_time else "integers"
        raise TraceError(f"{name} of another type", where=path, got=str(kind), expected=expected)
    given, values = _buffers(column)
    if is_time:
        with np.errstate(over="ignore"):  # infinite times are refused
            whole = values if pa.types.is_integer(kind) else np.rint(values.astype(np.float64) * NS_PER_MS)
        most = (1 << 63) // (NS_PER_MS if pa.types.is_integer(kind) else 1)
        if not bool(np.all((whole >= 0) & (whole < most))):
            raise TraceError(f"{name} is no time", where=path, expected="finite numbers of ms ≥ 0")
        values = whole.astype(np.int64) * (NS_PER_MS if pa.types.is_integer(kind) else 1)
    elif values.astype(np.int64).min() == _ABSENT or (kind == pa.uint64() and values.max() >= 1 << 63):
        raise TraceError(f"{name} is beyond 63 bits", where=path, expected="integers")
    return np.where(given, values.astype(np.int64), _ABSENT)

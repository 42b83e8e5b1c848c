"""A trace in Parquet, read by ``readers.parquet``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.output import new_file
from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.parquet import BLOCK_SIZE_KEY, MEMBERS, NUMBERS, TIMES
from kvcache_sim.workload.toolbox.write import Part, other_members
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, NOT_GIVEN, OPEN_LOOP, Trace


def write_parquet(path: Path, parts: Iterator[Part], block_size: int, force: bool) -> None:
    """Write rows to a file whose columns have the names of Mooncake's members; raises as ``new_file``.

    Ids are integers of 64 bits, times doubles of ms; ``UsageError`` for what these cannot hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with new_file(path, force) as raw:
        writer = kind = None
        for part, ids in parts:
            values = _integers(path, ids)
            kind = kind or (pa.uint64() if len(values) and int(values.max()) >> 63 else pa.int64())
            if kind == pa.int64() and len(values) and int(values.max()) >> 63:
                raise UsageError(
                    "ids of 64 bits behind smaller ones", where=str(path), hint="a name in .jsonl"
                )
            if writer is None:
                schema = _schema(kind, block_size)
                writer = pq.ParquetWriter(
                    raw,
                    schema,
                    use_dictionary=["session_id"],
                    column_encoding={"hash_ids.list.element": "DELTA_BINARY_PACKED"},
                )
            offsets, leaves = pa.array(part.id_offsets, pa.int32()), pa.array(values, kind)
            hash_ids = pa.ListArray.from_arrays(offsets, leaves, type=_list_of(kind))
            given = zip(_columns(path, part), schema.types, strict=False)
            columns = [pa.array(column, arrow_type) for column, arrow_type in given]
            writer.write_batch(pa.record_batch([*columns, hash_ids], schema=schema))
        if writer is not None:
            writer.close()


def _list_of(kind: Any) -> Any:
    import pyarrow as pa

    return pa.list_(pa.field("element", kind, nullable=False))


def _schema(ids: Any, block_size: int) -> Any:
    import pyarrow as pa

    kinds = {name: pa.float64() if name in TIMES else pa.int64() for name in NUMBERS}
    kinds["is_conversational_turn"] = pa.bool_()
    kinds |= {"session_id": pa.string(), MEMBERS: pa.string(), "hash_ids": _list_of(ids)}
    return pa.schema(list(kinds.items()), metadata={BLOCK_SIZE_KEY: str(block_size).encode()})


def _integers(path: Path, ids: NDArray[Any] | list[str] | list[int]) -> NDArray[np.uint64]:
    if isinstance(ids, list) and not all(isinstance(name, int) and 0 <= name < 1 << 64 for name in ids):
        what = "ids that are no integers of 64 bits"
        raise UsageError(
            what, where=str(path), hint="kvsim trace anonymise numbers them, a name in .jsonl keeps them"
        )
    return np.array(ids, np.uint64) if isinstance(ids, list) else ids.astype(np.uint64, copy=False)


def _columns(path: Path, part: Trace) -> Iterator[Any]:
    """Yield the values of a part by column, in the order of the schema; masked where a row has none."""
    waits = part.think_ns != OPEN_LOOP
    turned = part.is_conversational_turn != (part.turn > 0)
    given: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {
        "timestamp": (part.arrival_ns, ~waits),
        "delay": (part.think_ns, waits),
        "input_length": (part.input_tokens, np.ones(len(part), np.bool_)),
        "output_length": (part.output_tokens, np.ones(len(part), np.bool_)),
        "turn": (part.turn, part.session != NO_SESSION),
        "is_conversational_turn": (part.is_conversational_turn, turned),
        "after": (part.after, part.after != NO_REQUEST),
        "history_length": (part.history_tokens, part.history_tokens != NOT_GIVEN),
        "priority": (part.priority, part.priority != 0),
        "named_length": (part.named_tokens, part.named_tokens != 0),
        "abort_after": (part.abort_after_ns, part.abort_after_ns != NOT_GIVEN),
    }
    for name in NUMBERS:
        values, has = given[name]
        if not len(values):
            yield [None] * len(part)
            continue
        yield np.ma.array(_ms(path, values, has) if name in TIMES else values, mask=~has)
    names = part.session_names
    yield [None if s == NO_SESSION else names[s] for s in part.session.tolist()]
    yield [(text and other_members(text)) or None for text in part.extra] or [None] * len(part)


def _ms(path: Path, times_ns: NDArray[np.int64], has: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return times in ms, from which the same ns are read."""
    times = np.where(has, times_ns, 0)
    ms = times / NS_PER_MS
    if bool(np.any(np.rint(ms * NS_PER_MS).astype(np.int64) != times)):
        raise UsageError(
            "times finer than a double of ms", where=str(path), hint="a name in .jsonl keeps them"
        )
    return ms

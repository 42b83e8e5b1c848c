"""Tokens of a trace as files: written batch by batch under a temporary name, then renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.output import new_file
from kvcache_sim.workload.tokens.row_key import id_name, trace_row_key
from kvcache_sim.workload.tokens.sequences import TokenBatch
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa


class TokenSink(Protocol):
    """Receives the batches of a trace in order."""

    def write(self, batch: TokenBatch) -> None:
        """Write one batch; it may become invalid afterwards."""

    def finish(self) -> None:
        """Write what closes the file."""


class NumpySink:
    """One flat ``.npy`` of uint32, all rows concatenated; row bounds are the running sums of the lengths."""

    def __init__(self, file: IO[bytes], trace: Trace) -> None:
        self._file = file
        shape = (int(trace.input_tokens.sum()),)
        header = {"descr": "<u4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)

    def write(self, batch: TokenBatch) -> None:
        """Append the batch's tokens."""
        self._file.write(batch.tokens.astype("<u4", copy=False).data)

    def finish(self) -> None:
        """Do nothing: the tokens end the file."""


class JsonlSink:
    """One JSON object per row: ``row``, ``session`` and ``turn`` if the trace has them, ``tokens``."""

    def __init__(self, file: IO[bytes], trace: Trace) -> None:
        self._file, self._trace = file, trace

    def write(self, batch: TokenBatch) -> None:
        """Append one line per row."""
        import json

        import pyarrow.compute as pc

        texts = pc.binary_join(_lists(batch, batch_type="string"), ",").to_pylist()
        for number, text in enumerate(texts, start=batch.first_row):
            key = trace_row_key(self._trace, number)
            named = f',"session":{json.dumps(key[0])},"turn":{key[1]}' if isinstance(key, tuple) else ""
            self._file.write(f'{{"row":{number}{named},"tokens":[{text}]}}\n'.encode())

    def finish(self) -> None:
        """Do nothing: the rows end the file."""


class ParquetSink:
    """Columns ``row``, ``session``, ``turn`` (null without a session) and ``tokens`` (list of uint32)."""

    def __init__(self, file: IO[bytes], trace: Trace) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._trace = trace
        self._schema = pa.schema(
            [
                ("row", pa.int64()),
                ("session", pa.string()),
                ("turn", pa.int32()),
                ("tokens", pa.list_(pa.uint32())),
            ]
        )
        # neighbors in a window differ little: small differences pack better and faster than a dictionary
        packed = {"tokens.list.element": "DELTA_BINARY_PACKED"}
        self._writer = pq.ParquetWriter(
            file, self._schema, use_dictionary=False, column_encoding=packed, write_statistics=False
        )

    def write(self, batch: TokenBatch) -> None:
        """Append a row group."""
        import pyarrow as pa

        rows = range(batch.first_row, batch.first_row + len(batch.offsets) - 1)
        keys = [trace_row_key(self._trace, row) for row in rows]
        sessions = [key[0] if isinstance(key, tuple) else None for key in keys]
        turns = [key[1] if isinstance(key, tuple) else None for key in keys]
        columns = [list(rows), sessions, turns, _lists(batch, batch_type="uint32")]
        arrays = [
            pa.array(c, f.type) if isinstance(c, list) else c
            for c, f in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def finish(self) -> None:
        """Write the footer."""
        self._writer.close()


#: format → the sink that writes it; a file's suffix selects its format.
FORMATS: dict[str, Callable[[IO[bytes], Trace], TokenSink]] = {
    "npy": NumpySink,
    "parquet": ParquetSink,
    "jsonl": JsonlSink,
}


def format_of(path: Path) -> str:
    """Return the format of a file's suffix; UsageError for an unknown suffix."""
    name = path.suffix.removeprefix(".")
    if name not in FORMATS:
        raise UsageError(
            "no such token format", where=str(path), got=repr(path.suffix), expected=", ".join(FORMATS)
        )
    return name


@contextmanager
def token_file(path: Path, trace: Trace, force: bool) -> Iterator[TokenSink]:
    """Yield the sink of a new file; the file appears when the block ends without an error.

    Raises UsageError for an unknown suffix, OutputExistsError if the file exists and ``force`` is not given
    (and for a directory), InputOutputError if it cannot be written. Memory: one batch.
    """
    make = FORMATS[format_of(path)]
    with new_file(path, force) as file:
        sink = make(file, trace)
        yield sink
        sink.finish()


def offset_lines(trace: Trace, starts: NDArray[np.uint32]) -> Iterator[bytes]:
    """Yield ``<id>:<start>`` lines in order of first appearance; unprintable characters are escaped."""
    for dense, start in enumerate(starts.tolist()):
        name = str(id_name(trace, dense))
        shown = name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
        yield f"{shown}:{start}\n".encode()


def _lists(batch: TokenBatch, batch_type: str) -> Any:
    """Return a batch as an arrow array of lists, with tokens as numbers or texts."""
    import pyarrow as pa

    tokens: pa.Array = pa.array(batch.tokens)
    if batch_type == "string":
        tokens = tokens.cast(pa.string())
    return pa.ListArray.from_arrays(pa.array(batch.offsets.astype(np.int32)), tokens)

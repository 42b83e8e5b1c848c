"""LMCache agent traces: lengths in bytes, ids of chained 256-byte blocks, one session an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.readers.format import TraceFormat, first_row
from kvcache_sim.workload.readers.jsonl import MOONCAKE, read_jsonl

if TYPE_CHECKING:
    from kvcache_sim._core import JsonlSchema, RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_BYTES = 256

SCHEMA: JsonlSchema = {**MOONCAKE, "input": "input_bytes", "output": "output_bytes"}


def _detect(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"input_bytes", "output_bytes"} <= row.keys()


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    each = settings.bytes_per_token
    if BLOCK_BYTES % each:
        raise UsageError(
            "bytes_per_token must divide the trace's 256-byte blocks",
            where="bytes_per_token",
            got=str(each),
            expected="1, 2, 4, 8, …, 256",
        )
    columns = read_jsonl(source, settings, {**SCHEMA, "per_token": each}, BLOCK_BYTES // each)
    said = f"lengths are bytes; bytes a token: {each}"
    columns["findings"].append(("bytes-as-tokens", len(columns["arrival_ns"]), 0, said))
    return columns


FORMAT = TraceFormat(
    "lmcache",
    "JSON lines: timestamp (ms), session_id, input_bytes, output_bytes, ids of 256 bytes",
    _detect,
    _read,
    256,
)

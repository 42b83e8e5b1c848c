"""LMCache agent traces: lengths in bytes, ids of chained 256-byte blocks, one session an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.jsonl import MOONCAKE, read_jsonl
from kvcache_sim.workload.readers.signs import SIGNS

if TYPE_CHECKING:
    from kvcache_sim._core import JsonlSchema, RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_BYTES = 256

SCHEMA: JsonlSchema = {**MOONCAKE, "input": "input_bytes", "output": "output_bytes"}


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    if settings.tokenizer is not None:
        raise UsageError(
            "has no effect", where="trace.tokenizer", hint="the file has lengths and ids, no texts"
        )
    block = _tell_block(b"", settings)
    schema: JsonlSchema = {**SCHEMA, "per_token": settings.token_bytes}
    columns = read_jsonl(source, settings, schema, block)
    said = f"lengths are bytes, {settings.token_bytes_said}"
    hint = "" if settings.bytes_per_token else ": trace.bytes_per_token says otherwise"
    columns["findings"].append(("bytes-as-tokens", len(columns["arrival_ns"]), 0, said + hint))
    return columns


def _tell_block(head: bytes, settings: ReadSettings) -> int:
    del head
    each = settings.token_bytes
    if BLOCK_BYTES % each:
        raise UsageError(
            "bytes_per_token must divide the trace's 256-byte blocks",
            where="bytes_per_token",
            got=str(each),
            expected="1, 2, 4, 8, …, 256",
        )
    return BLOCK_BYTES // each


FORMAT = TraceFormat(
    "lmcache",
    "JSON lines: timestamp (ms), session_id, input_bytes, output_bytes, ids of 256 bytes",
    SIGNS["lmcache"],
    _read,
    tell_block=_tell_block,
)

"""Mooncake (kvcache-ai, FAST'25): JSON lines, times in ms, prefix-chained ids of 512-token blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.workload.readers.format import TraceFormat, first_row
from kvcache_sim.workload.readers.jsonl import MOONCAKE, read_jsonl

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


def _detect(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and bool({"input_length", "output_length", "hash_ids"} & row.keys())


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    return read_jsonl(source, settings, MOONCAKE, FORMAT.block_size)


FORMAT = TraceFormat(
    "mooncake", "JSON lines: timestamp (ms), input_length, output_length, hash_ids", _detect, _read
)

"""Mooncake (kvcache-ai, FAST'25): JSON lines, times in ms, prefix-chained ids of 512-token blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.workload.readers.detect_head import read_head
from kvcache_sim.workload.readers.fitting_block import fitting_block, guessed_block
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.jsonl import MOONCAKE, raw_settings, read_jsonl
from kvcache_sim.workload.readers.signs import SIGNS

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceRows, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    block = FORMAT.block_of(read_head(source), settings)
    columns = read_jsonl(source, settings, MOONCAKE, block)
    if settings.block_size is None and block != FORMAT.block_size:
        columns["findings"].append(guessed_block(block, len(columns["arrival_ns"])))
    return columns


def _tell_block(head: bytes, settings: ReadSettings) -> int:
    del settings
    return fitting_block(head, FORMAT.block_size)


def _rows(source: TraceSource, settings: ReadSettings) -> TraceRows:
    from kvcache_sim._core import TraceRows

    return TraceRows(source, MOONCAKE, raw_settings(settings, FORMAT.block_size))


FORMAT = TraceFormat(
    "mooncake",
    "JSON lines: timestamp (ms), input_length, output_length, hash_ids",
    SIGNS["mooncake"],
    _read,
    tell_block=_tell_block,
    rows=_rows,
)

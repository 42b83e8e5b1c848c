"""Rows of CSV: arrivals and lengths, read by the native scanner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.jsonl import raw_settings
from kvcache_sim.workload.readers.signs import SIGNS

if TYPE_CHECKING:
    from kvcache_sim._core import CsvSchema, RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: Formats without ids are cut into blocks of this many tokens unless the settings say otherwise.
BLOCK_SIZE = 512


def csv_format(name: str, help_line: str, schema: CsvSchema) -> TraceFormat:
    """Return the format of such rows; its sign are the schema's time, input and output columns."""

    def read(source: TraceSource, settings: ReadSettings) -> RawColumns:
        columns = source.read_csv(schema, raw_settings(settings, BLOCK_SIZE))
        columns["block_size"] = settings.block_size or BLOCK_SIZE
        return columns

    return TraceFormat(name, help_line, SIGNS[name], read, BLOCK_SIZE)

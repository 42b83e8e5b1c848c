"""Rows of CSV: arrivals and lengths, read by the native scanner (Azure, BurstGPT, Vidur)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat
from kvcache_sim.workload.readers.json_rows import raw_settings

if TYPE_CHECKING:
    from kvcache_sim._core import CsvSchema, RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: Formats without ids are cut into blocks of this many tokens unless the settings override it.
BLOCK_SIZE = 512


def _schema(time: str, inputs: str, outputs: str, session: str = "", unit_ns: int = NS_PER_S) -> CsvSchema:
    return {"time": time, "time_unit_ns": unit_ns, "input": inputs, "output": outputs, "session": session}


#: The columns of each format; a unit of 0: times are dates.
SCHEMAS = {
    "azure": _schema("TIMESTAMP", "ContextTokens", "GeneratedTokens", unit_ns=0),
    "burstgpt": _schema("Timestamp", "Request tokens", "Response tokens", "Session ID"),
    "vidur": _schema("arrived_at", "num_prefill_tokens", "num_decode_tokens", "session_id"),
}


def csv_format(name: str, help_line: str) -> TraceFormat:
    """Return the format of such rows; it is detected by the schema's time, input and output columns."""

    def read(source: TraceSource, settings: ReadSettings) -> RawColumns:
        columns = source.read_csv(SCHEMAS[name], raw_settings(settings, BLOCK_SIZE))
        columns["block_size"] = settings.block_size or BLOCK_SIZE
        return columns

    return TraceFormat(name, help_line, SIGNS[name], read, BLOCK_SIZE)


#: Azure LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset): dates and lengths.
AZURE = csv_format("azure", "CSV: TIMESTAMP (a date), ContextTokens, GeneratedTokens")
#: BurstGPT (HPMLL): seconds and lengths; a response of 0 tokens is a failed request.
BURSTGPT = csv_format(
    "burstgpt", "CSV: Timestamp (s), Request tokens, Response tokens, Session ID where given"
)
#: Vidur (Microsoft): seconds and lengths.
VIDUR = csv_format("vidur", "CSV: arrived_at (s), num_prefill_tokens, num_decode_tokens")

"""BurstGPT (HPMLL): seconds and lengths; a response of 0 tokens is a request that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.readers.csv_rows import csv_format

if TYPE_CHECKING:
    from kvcache_sim._core import CsvSchema

SCHEMA: CsvSchema = {
    "time": "Timestamp",
    "time_unit_ns": NS_PER_S,
    "input": "Request tokens",
    "output": "Response tokens",
    "session": "Session ID",
}
FORMAT = csv_format(
    "burstgpt", "CSV: Timestamp (s), Request tokens, Response tokens, Session ID where given", SCHEMA
)

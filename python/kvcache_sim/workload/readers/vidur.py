"""Vidur (Microsoft): seconds and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.readers.csv_rows import csv_format

if TYPE_CHECKING:
    from kvcache_sim._core import CsvSchema

SCHEMA: CsvSchema = {
    "time": "arrived_at",
    "time_unit_ns": NS_PER_S,
    "input": "num_prefill_tokens",
    "output": "num_decode_tokens",
    "session": "session_id",
}
FORMAT = csv_format("vidur", "CSV: arrived_at (s), num_prefill_tokens, num_decode_tokens", SCHEMA)

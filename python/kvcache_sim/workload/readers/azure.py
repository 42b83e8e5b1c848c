"""Azure LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset): dates and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.workload.readers.csv_rows import csv_format

if TYPE_CHECKING:
    from kvcache_sim._core import CsvSchema

SCHEMA: CsvSchema = {
    "time": "TIMESTAMP",
    "time_unit_ns": 0,  # dates
    "input": "ContextTokens",
    "output": "GeneratedTokens",
    "session": "",
}
FORMAT = csv_format("azure", "CSV: TIMESTAMP (a date), ContextTokens, GeneratedTokens", SCHEMA)

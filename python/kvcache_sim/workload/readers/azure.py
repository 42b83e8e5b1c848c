"""Azure LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset): dates and lengths."""

from __future__ import annotations

from kvcache_sim.workload.readers.csv_rows import csv_format

FORMAT = csv_format(
    "azure",
    "CSV: TIMESTAMP (a date), ContextTokens, GeneratedTokens",
    {
        "time": "TIMESTAMP",
        "time_unit_ns": 0,  # dates
        "input": "ContextTokens",
        "output": "GeneratedTokens",
        "session": "",
    },
)

"""Vidur (Microsoft): seconds and lengths."""

from __future__ import annotations

from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.readers.csv_rows import csv_format

FORMAT = csv_format(
    "vidur",
    "CSV: arrived_at (s), num_prefill_tokens, num_decode_tokens",
    {
        "time": "arrived_at",
        "time_unit_ns": NS_PER_S,
        "input": "num_prefill_tokens",
        "output": "num_decode_tokens",
        "session": "session_id",
    },
)

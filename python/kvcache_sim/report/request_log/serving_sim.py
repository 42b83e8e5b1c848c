"""LLMServingSim's CSV: a row a request, in the order in which they ended."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from kvcache_sim.errors import TraceError
from kvcache_sim.report.request_log.record import LoggedRequest


def read_serving_sim(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests, paired by ``request id``; times in ns. Raises TraceError with the line.

    ``arrival``, ``input`` and ``cached`` (prompt tokens, and those that a cache served) are read where given.
    """
    reader = csv.DictReader(text.splitlines())
    for name in ("request id", "output", "latency", "TTFT"):
        if name not in (reader.fieldnames or ()):
            known = "AIPerf, vLLM, GuideLLM, SGLang and LLMServingSim logs are read"
            raise TraceError(f"no column {name}", where=f"{path}:1", hint=known)
    for row in reader:
        try:
            yield LoggedRequest(
                ttft_s=float(row["TTFT"]) / 1e9,
                e2e_s=float(row["latency"]) / 1e9,
                output_tokens=float(row["output"]),
                number=int(row["request id"]),
                started_s=float(row["arrival"]) / 1e9 if row.get("arrival") else None,
                input_tokens=float(row.get("input") or "nan"),
                cached_tokens=float(row.get("cached") or "nan"),
            )
        except (TypeError, ValueError):
            raise TraceError("not a number", where=f"{path}:{reader.line_num}") from None

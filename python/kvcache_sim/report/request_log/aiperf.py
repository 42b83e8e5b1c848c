"""AIPerf's ``profile_export.jsonl``: a record a request, in the order in which they ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvcache_sim.errors import TraceError
from kvcache_sim.report.request_log.record import LoggedRequest

_UNKNOWN = {"value": "nan"}
_TO_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def read_aiperf(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests; they are paired by ``metadata.request_start_ns``, where records have it.

    Raises TraceError with the line of a record that is none.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            metrics = record.get("metrics") or {}
            start_ns = (record.get("metadata") or {}).get("request_start_ns")
            started_s = None if start_ns is None else int(start_ns) / 1e9
            if record.get("error") or "request_latency" not in metrics:
                yield LoggedRequest(started_s=started_s, failed=True)
                continue
            tokens = metrics.get("output_sequence_length") or metrics["output_token_count"]
            yield LoggedRequest(
                ttft_s=_seconds(metrics["time_to_first_token"]),
                e2e_s=_seconds(metrics["request_latency"]),
                output_tokens=float(tokens["value"]),
                started_s=started_s,
                input_tokens=float((metrics.get("input_sequence_length") or _UNKNOWN)["value"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"not an AIPerf record: {error}", where=f"{path}:{number}") from None


def _seconds(metric: dict[str, Any]) -> float:
    return float(metric["value"]) * _TO_S[metric["unit"]]

"""GuideLLM's JSON report: the requests of its only benchmark, paired by the time they were started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvcache_sim.errors import TraceError
from kvcache_sim.report.request_log.record import LoggedRequest


def read_guidellm(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests of a report with one benchmark; raises TraceError for another one.

    ``requests`` has lists ``successful``, ``incomplete`` and ``errored`` (GuideLLM 0.8); what did not
    succeed counts as failed.
    """
    try:
        benchmarks = json.loads(text)["benchmarks"]
        if len(benchmarks) != 1:
            raise TraceError("one benchmark a file", where=str(path), got=f"{len(benchmarks)} benchmarks")
        for kind, requests in benchmarks[0]["requests"].items():
            for request in requests or ():
                yield _request(request, kind)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"not a GuideLLM report: {error}", where=str(path)) from None


def _request(request: dict[str, Any], kind: str) -> LoggedRequest:
    timings = (request.get("info") or {}).get("timings") or {}
    started = timings.get("request_start")
    started_s = None if started is None else float(started)
    if kind != "successful":
        return LoggedRequest(started_s=started_s, failed=True)
    return LoggedRequest(
        ttft_s=float(request["time_to_first_token_ms"]) / 1e3,
        e2e_s=float(request["request_latency"]),
        output_tokens=float(request["output_tokens"]),
        started_s=started_s,
        input_tokens=float(request.get("prompt_tokens") or "nan"),
    )

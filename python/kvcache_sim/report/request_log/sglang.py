"""SGLang's ``--log-requests --log-requests-format json``: an event a line, requests by ``rid``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvcache_sim.errors import TraceError
from kvcache_sim.report.request_log.record import LoggedRequest


def read_sglang(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests in the order they were received; the log has no TTFT.

    A request that never finished counts as failed. Raises TraceError with the line that is no event.
    """
    received: dict[str, LoggedRequest] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            kind = event["event"]
            if kind == "request.received":
                received.setdefault(event["rid"], LoggedRequest(failed=True))
            elif kind == "request.finished":
                received[event["rid"]] = _finished(event["out"]["meta_info"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"not an SGLang log: {error}", where=f"{path}:{number}") from None
    yield from received.values()


def _finished(meta: dict[str, Any]) -> LoggedRequest:
    if (meta.get("finish_reason") or {}).get("type") == "abort":
        return LoggedRequest(failed=True)
    return LoggedRequest(
        e2e_s=float(meta["e2e_latency"]),
        output_tokens=float(meta["completion_tokens"]),
        input_tokens=float(meta.get("prompt_tokens", "nan")),
        cached_tokens=float(meta.get("cached_tokens", "nan")),
    )

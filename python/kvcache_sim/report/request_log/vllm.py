"""``vllm bench serve --save-result --save-detailed``: arrays by request, in the order of the trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from kvcache_sim.errors import TraceError
from kvcache_sim.report.request_log.record import LoggedRequest


def read_vllm(text: str, path: Path) -> Iterator[LoggedRequest]:
    """Yield the requests; raises TraceError where arrays are missing or do not belong together."""
    try:
        log = json.loads(text)
        errors = log.get("errors") or [""] * len(log["ttfts"])
        # An event may bring several tokens, so gaps are counted only where the lengths are not written.
        tokens = log.get("output_lens") or [len(itl) + 1 for itl in log["itls"]]
        starts = log.get("start_times") or [None] * len(log["ttfts"])
        prompts = log.get("input_lens") or ["nan"] * len(log["ttfts"])
        rows = zip(log["ttfts"], log["itls"], errors, tokens, starts, prompts, strict=True)
        for number, (ttft, itl, error, output, start, prompt) in enumerate(rows):
            if error:
                yield LoggedRequest(number=number, failed=True)
                continue
            yield LoggedRequest(
                float(ttft),
                float(ttft) + sum(itl),
                float(output),
                number,
                None if start is None else float(start),
                input_tokens=float(prompt),
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"not a vLLM benchmark: {error}", where=str(path)) from None

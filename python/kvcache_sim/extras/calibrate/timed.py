"""A log as times and lengths, where it has all that a fit of step times needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvcache_sim.base.errors import TraceError
from kvcache_sim.extras.calibrate.request_steps import TimedRequests
from kvcache_sim.report.request_log.read import logged_requests

#: Most requests that a fit takes of a log: the first ones sent.
MOST_REQUESTS = 4000


def timed_requests(path: Path) -> tuple[TimedRequests, tuple[str, ...]]:
    """Return the finished requests of a log in the order they were sent, and remarks on them.

    Raises as ``read_request_log``, and TraceError where the log lacks a time or a length.
    """
    every = logged_requests(path)
    found = [request for request in every if not request.failed]
    if not found:
        raise TraceError("no finished requests", where=str(path))
    started = [request.started_s for request in found]
    columns = {
        "start time": np.array([np.nan if s is None else s for s in started], np.float64),
        "TTFT": np.array([request.ttft_s for request in found]),
        "E2E latency": np.array([request.e2e_s for request in found]),
        "prompt length": np.array([request.input_tokens for request in found]),
        "output length": np.array([request.output_tokens for request in found]),
    }
    for name, values in columns.items():
        if not np.isfinite(values).all():
            raise TraceError(f"no {name}", where=str(path), hint="a fit needs times and lengths of all")
    cached = np.array([request.cached_tokens for request in found])
    said = []
    if len(every) > len(found):
        said.append(f"{len(every) - len(found)} failed requests left out, also of the load")
    if np.isnan(cached).any():
        said.append("the log does not say what a prefix cache served: taken as nothing")
    if len(found) > MOST_REQUESTS:
        said.append(f"the first {MOST_REQUESTS:,} of {len(found):,} requests")
    order = np.argsort(columns["start time"], kind="stable")[:MOST_REQUESTS]
    sent, ttft, e2e, prompt, output = (values[order] for values in columns.values())
    return TimedRequests(sent - sent[0], ttft, e2e, prompt, output, np.nan_to_num(cached)[order]), tuple(said)

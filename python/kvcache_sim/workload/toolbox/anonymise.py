"""A trace without names: what is shared stays, what it was called does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvcache_sim.workload.toolbox.invariant import require, same_requests
from kvcache_sim.workload.trace import OPEN_LOOP, Trace


def anonymise(trace: Trace) -> Trace:
    """Return the trace with ids and sessions numbered by first appearance, times from 0, nothing unknown.

    Lengths, sharing and distances of time stay: they are what a simulation needs. Invariant: the sharing of
    blocks and sessions is the same, and no name of the input is left.
    """
    opens = trace.think_ns == OPEN_LOOP
    start = int(trace.arrival_ns[opens].min()) if bool(opens.any()) else 0
    out = replace(
        trace,
        arrival_ns=np.maximum(trace.arrival_ns - start, 0),
        id_names=np.empty(0, np.int64),
        session_names=[f"s{k}" for k in range(len(trace.session_names))],
        extra=[],
        source="",
        sha256="",
        warnings=(),
    )
    kept = np.array_equal(out.arrival_ns[opens] + start, trace.arrival_ns[opens])
    require(kept and same_requests(trace, out), "anonymise", "sharing and distances of time stay")
    return out

"""A trace several times over, each time with blocks and sessions of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.toolbox.invariant import require, same_requests
from kvcache_sim.workload.toolbox.namespace import stacked
from kvcache_sim.workload.trace import OPEN_LOOP, Trace


def repeat(trace: Trace, times: int, gap_ns: int) -> Trace:
    """Return the trace ``times`` times, each copy ``gap_ns`` behind the last arrival of the one before.

    Invariant: every copy is the trace itself, and no two share a block.
    """
    if not 1 <= times <= 10_000:
        raise UsageError("times out of range", where="TIMES", got=str(times), expected="1 to 10000")
    opens = trace.think_ns == OPEN_LOOP
    span = int(trace.arrival_ns[opens].max()) + gap_ns if bool(opens.any()) else gap_ns
    if (times - 1) * span + int(trace.arrival_ns.max()) >= 1 << 63:
        raise UsageError("the copies end beyond 292 years", where="TIMES", got=str(times))
    copies = [replace(trace, arrival_ns=trace.arrival_ns + k * span) for k in range(times)]
    out = stacked(copies)
    require(out.distinct_ids == times * trace.distinct_ids, "repeat", "no two copies share a block")
    n = len(trace)
    last = select_rows(out, np.arange((times - 1) * n, times * n))
    require(same_requests(last, select_rows(trace, np.arange(n))), "repeat", "every copy is the trace itself")
    return out

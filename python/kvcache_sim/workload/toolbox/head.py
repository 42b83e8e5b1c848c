"""The first requests of a trace."""

from __future__ import annotations

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.toolbox.invariant import require
from kvcache_sim.workload.trace import Trace


def head(trace: Trace, requests: int) -> Trace:
    """Return the first ``requests`` rows. Invariant: they are the trace's own."""
    if requests < 1:
        raise UsageError("at least one request must be left", where="N", got=str(requests), expected="N ≥ 1")
    count = min(requests, len(trace))
    out = select_rows(trace, np.arange(count))
    references = int(trace.id_offsets[count])
    same = np.array_equal(out.block_ids, trace.block_ids[:references])
    same &= np.array_equal(out.arrival_ns, trace.arrival_ns[:count])
    require(bool(same) and len(out) == count, "head", "the rows are the first of the input")
    return out

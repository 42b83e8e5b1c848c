"""Several traces as one, by time of arrival."""

from __future__ import annotations

import numpy as np

from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.toolbox.invariant import require, same_requests
from kvcache_sim.workload.toolbox.namespace import stacked
from kvcache_sim.workload.trace import Trace


def merge(traces: list[Trace]) -> Trace:
    """Return all requests in order of arrival; on ties the earlier trace first. Nothing is shared.

    Invariant: each trace is found whole in the output, in its own order, and the distinct blocks add up.
    """
    together = stacked(traces)
    order = np.argsort(together.arrival_ns, kind="stable")
    out = select_rows(together, order)
    require(out.distinct_ids == sum(t.distinct_ids for t in traces), "merge", "distinct blocks add up")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first = 0
    for trace in traces:
        found = select_rows(out, place[first : first + len(trace)])
        alone = select_rows(trace, np.arange(len(trace)))
        require(same_requests(found, alone), "merge", "each trace is whole in the output")
        first += len(trace)
    return out

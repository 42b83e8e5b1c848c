"""A window of time out of a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.sessions import predecessors
from kvcache_sim.workload.toolbox.invariant import require
from kvcache_sim.workload.trace import NO_REQUEST, OPEN_LOOP, Trace


def cut(trace: Trace, from_ns: int, to_ns: int) -> Trace:
    """Return the requests that arrive in [from, to), ``from`` becoming time 0.

    Closed-loop requests go with the request they wait for. Invariant: arrivals keep their distances, rows
    their lengths and ids, and no request waits for one that was left out.
    """
    if to_ns <= from_ns:
        raise UsageError(
            "an empty window", where="--to", got=f"{to_ns} ns", expected=f"more than {from_ns} ns"
        )
    chosen = _chosen(trace, from_ns, to_ns)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        raise TraceError("no request arrives in the window", where=trace.source)
    part = select_rows(trace, rows)
    out = replace(part, arrival_ns=np.maximum(part.arrival_ns - from_ns, 0))
    opens = part.think_ns == OPEN_LOOP
    kept = np.array_equal(out.arrival_ns[opens] + from_ns, trace.arrival_ns[rows][opens])
    require(
        kept and bool(np.all(out.arrival_ns[opens] < to_ns - from_ns)),
        "slice",
        "arrivals keep their distances",
    )
    waits = predecessors(trace)[rows]
    orphans = (waits != NO_REQUEST) & ~chosen[waits]
    require(not bool(orphans.any()), "slice", "no request waits for one left out")
    return out


def _chosen(trace: Trace, from_ns: int, to_ns: int) -> NDArray[np.bool_]:
    """Return which rows are in: by arrival, or with the first of the chain of requests they wait for."""
    waits = predecessors(trace)
    root = np.where(waits == NO_REQUEST, np.arange(len(trace)), waits)
    while True:
        above = root[root]
        if np.array_equal(above, root):
            break
        root = above
    inside = (trace.arrival_ns >= from_ns) & (trace.arrival_ns < to_ns)
    return inside[root]


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

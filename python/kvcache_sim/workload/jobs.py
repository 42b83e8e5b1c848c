"""Jobs of a trace: requests that belong together because one waits for another or goes on in its session."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.sessions import predecessors, previous_turns
from kvcache_sim.workload.trace import NO_REQUEST, Trace


def jobs_of(trace: Trace) -> NDArray[np.int32] | None:
    """Return the number of each request's job, in order of their first requests; None where nobody waits.

    An agent with all its sub-agents is one job, and so is a session. Cost: a walk of the requests.
    """
    waits = predecessors(trace)
    if not (waits != NO_REQUEST).any():
        return None
    root = list(range(len(trace)))

    def find(request: int) -> int:
        while root[request] != request:
            root[request] = request = root[root[request]]
        return request

    for before in (waits, previous_turns(trace)):
        for request in np.flatnonzero(before != NO_REQUEST).tolist():
            _join(root, find(request), find(int(before[request])))
    for request, other in trace.also_after.tolist():
        _join(root, find(request), find(other))
    roots = np.array([find(request) for request in range(len(trace))], np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int32)


def _join(root: list[int], one: int, other: int) -> None:
    """Let two jobs be one, which is called after its first request."""
    first, second = sorted((one, other))
    root[second] = first


def job_starts_ns(trace: Trace, jobs: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return for each request when the first request of its job arrives that waits for no other."""
    arrival_ns = np.where(trace.think_ns >= 0, np.maximum(trace.think_ns, 0), trace.arrival_ns)
    arrival_ns = np.where(predecessors(trace) == NO_REQUEST, arrival_ns, np.iinfo(np.int64).max)
    starts = np.full(int(jobs.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(starts, jobs, arrival_ns)
    found: NDArray[np.int64] = starts[jobs]
    return found

"""The native arrival path: routing, queueing and serving in the core, without a Python call per request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.serving.cluster import Cluster, ReadOn
from kvcache_sim.serving.handover.pools import LAST_TOKEN
from kvcache_sim.serving.native_cluster import NativeCluster
from kvcache_sim.serving.router.in_core import CoreRule, rule_in_core
from kvcache_sim.workload.trace import NOT_GIVEN

#: Requests passed to the core at a time.
_AT_A_TIME = 1 << 12


def open_front_door(cluster: Cluster) -> bool:
    """Enable the native arrival path if no Python observer needs each request; return True if enabled.

    It needs an open loop, replicas of the core with lookahead, and a routing rule that the core has.
    Otherwise each arrival stays an event of the engine. Results do not depend on the path.
    """
    rule = rule_in_core(cluster.router)
    replicas, digests = cluster.replicas, cluster.digests
    if rule is None or not cluster.is_plain or not all(replica.takes_native_arrivals for replica in replicas):
        return False
    pools = cluster.pools
    machines = pools.native
    if machines is None:
        machines = NativeCluster(replicas, None, None, cluster.recorder)
        machines.enable_lookahead()
    elif pools.decoding and not pools.decodes_in_core:
        return False
    cluster.come_in_by(FrontDoor(cluster, machines, rule, digests).start)
    return True


class FrontDoor:
    """Passes a cluster's requests to the core in batches, and reports requests that left to the cluster."""

    def __init__(
        self, cluster: Cluster, machines: NativeCluster, rule: CoreRule, digests: list[_core.Digest]
    ) -> None:
        self._cluster, self._machines = cluster, machines
        self._rule, self._digests = rule, digests
        self._trace, self._first = cluster.trace, 0
        self._order: NDArray[np.int64] = cluster.order
        self._at_ns = cluster.first_arrivals_ns
        self._position = 0
        self._read_on: ReadOn | None = None
        #: Requests that have not left, where the trace is read in windows.
        self._open: set[int] = set()

    def start(self, read_on: ReadOn | None) -> None:
        """Pass the first requests to the core; ``read_on`` as in ``Cluster.read_on``."""
        self._read_on = read_on
        cluster = self._cluster
        routed = [replica.machine for replica in cluster.pools.routed]
        trace = self._trace
        longest = LAST_TOKEN if read_on is not None else int((trace.input_tokens + trace.output_tokens).max())
        holds = cluster.pools.most_tokens(longest)
        self._machines.open(self, self._rule, routed, self._digests, holds)

    def next(self) -> bytes | None:
        """Return the next requests as ``_core.Cluster.feed`` takes them; None after the last one."""
        if self._position == len(self._order) and not self._next_window():
            return None
        rows = self._order[self._position : self._position + _AT_A_TIME]
        self._position += len(rows)
        self._cluster.count(len(rows), 0)
        trace, positions = self._trace, rows - self._first
        if self._read_on is not None:
            self._open.update(rows.tolist())
        columns = (
            rows,
            self._at_ns[positions],
            trace.input_tokens[positions],
            trace.output_tokens[positions],
            trace.session[positions],
            trace.turn[positions],
            trace.is_conversational_turn[positions],
            trace.priority[positions] if len(trace.priority) else np.zeros(len(rows), np.int64),
            trace.abort_after_ns[positions] if len(trace.abort_after_ns) else np.full(len(rows), NOT_GIVEN),
            trace.history_tokens[positions] if len(trace.history_tokens) else np.full(len(rows), NOT_GIVEN),
        )
        return np.stack([column.astype(np.int64) for column in columns], axis=1).tobytes()

    def _next_window(self) -> bool:
        if self._read_on is None:
            return False
        self._first += len(self._trace)
        trace = self._read_on(sorted(self._open))
        if trace is None:
            return False
        self._trace, self._at_ns, self._position = trace, trace.arrival_ns, 0
        self._cluster.look_at(trace, self._first, trace.arrival_ns)
        self._order = np.arange(self._first, self._first + len(trace))
        return True

    def closed(self, requests: list[int]) -> None:
        """Record the requests that finished."""
        self._cluster.count(0, len(requests))
        if self._read_on is not None:
            self._open.difference_update(requests)

    def rejected(self, request: int, machine: int) -> None:
        """Close a request that does not fit its machine."""
        self._cluster.reject(request, machine, int(self._at_ns[request - self._first]))
        if self._read_on is not None:
            self._open.discard(request)

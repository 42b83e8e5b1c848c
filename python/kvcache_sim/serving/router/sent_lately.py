"""Requests sent lately: what vLLM's production stack goes by without a hit and without a session."""

from __future__ import annotations

from collections import deque

from kvcache_sim.serving.router.contract import RouterView
from kvcache_sim.serving.router.hash_ring import HashRing
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.units import NS_PER_S

#: Over how long requests are counted (``--request-stats-window``).
WINDOW_NS = 60 * NS_PER_S


class SentLately:
    """The machine of the session on a ring, else the one sent fewest requests in the last 60 s.

    A machine that was never sent any comes first; of equals the first. Every choice has to be ``sent``.

    Source: ``_qps_routing`` and the session ring of src/vllm_router/routers/routing_logic.py, and the sliding
    windows of src/vllm_router/stats/request_stats.py, vllm-project/production-stack at a6c01db0.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ring = HashRing(len(view.replicas))
        self._counts = [0] * len(view.replicas)
        self._seen = [False] * len(view.replicas)
        self._times: deque[tuple[int, int]] = deque()

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the session or of the smallest rate."""
        if sequence.session >= 0:
            return self._ring.owner(str(sequence.session))
        if not all(self._seen):
            return self._seen.index(False)
        begin = self._view.now_ns() - WINDOW_NS
        while self._times and self._times[0][0] < begin:
            self._counts[self._times.popleft()[1]] -= 1
        return self._counts.index(min(self._counts))

    def sent(self, machine: int) -> None:
        """Count a request."""
        self._seen[machine] = True
        self._counts[machine] += 1
        self._times.append((self._view.now_ns(), machine))

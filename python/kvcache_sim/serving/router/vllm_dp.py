"""vLLM's own balancer of data-parallel ranks: reported queues, own requests, and a rotating start."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.serving.router.contract import Needs, Occupancy, RouterView
from kvcache_sim.serving.sequence import Arrival


class VllmDataParallel:
    """The least max(own, waiting + running) + 6 × waiting × max(0, KV use − 0.5), from a rotating start.

    Own requests are unfinished requests that this router sent. Waiting, running and KV use are those of the
    last report (``router.view.interval``: 100 ms in vLLM); each choice adds one waiting request until the
    next report. Ranks are visited from a start that advances by one with each choice; the first of equals is
    chosen.

    Why: Ranks of one engine wait for each other: a full KV cache and a queue count more than running
    requests.
    Example: Two machines run 5 and 6; 2 wait on the first at KV use 0.9: 7 + 4.8 against 6: the second.
    Source: ``DPLBAsyncMPClient.get_core_engine_for_request`` of vllm/v1/engine/core_client.py and
    vllm/v1/engine/coordinator.py of vLLM 0.33.0, with one API server.
    """

    needs = Needs(engine_loads=True, load_alone=True)

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._start = 0
        self._looks = 0
        self._report: Occupancy | None = None

    def choose(self, sequence: Arrival) -> int:
        """Return the rank of the smallest score."""
        report = self._last_report()
        requests, n = self._view.requests(), len(report.waiting)
        met = ((self._start + step) % n for step in range(n))
        chosen = min(met, key=lambda rank: self.score(report, requests, rank))
        report.waiting[chosen] += 1
        self._start = self.next_start(self._start, n)
        return chosen

    def score(self, report: Occupancy, requests: Sequence[int], rank: int) -> float:
        """Return the score of a rank; the smallest is chosen. ``own``: unfinished requests sent, by rank."""
        waiting, use = report.waiting[rank], report.kv_use[rank]
        queued = max(requests[rank], waiting + report.running[rank])
        return queued + (6 * waiting * max(0.0, use - 0.5) if waiting > 0 else 0.0)

    def next_start(self, start: int, ranks: int) -> int:
        """Return the rank at which the next choice starts."""
        return (start + 1) % ranks

    def _last_report(self) -> Occupancy:
        loads = self._view.loads
        if self._report is None or loads.looks != self._looks or loads.looks < 0:
            waiting, running, kv_use = loads.occupancy()
            self._report, self._looks = Occupancy([*waiting], running, kv_use), loads.looks
        return self._report


class VllmDataParallelWaiting(VllmDataParallel):
    """The least 4 × waiting + running, the first of equals: the balancer of vLLM's releases up to about 0.10.

    Its reports are used and updated as in ``VllmDataParallel``; ranks are always visited from the first.

    Why: A waiting request delays the next more than a running one.
    Example: 4 × 1 + 3 is 7, 0 + 6 is 6: the second machine.
    Source: ``DPLBAsyncMPClient`` of vLLM's releases up to about 0.10.
    """

    def score(self, report: Occupancy, requests: Sequence[int], rank: int) -> float:
        """Return the score of a rank; the smallest is chosen."""
        return 4 * report.waiting[rank] + report.running[rank]

    def next_start(self, start: int, ranks: int) -> int:
        """Return the rank at which the next choice starts."""
        return start

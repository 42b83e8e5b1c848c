"""vLLM's own balancer of data-parallel ranks: reported queues, own requests, and a rotating start."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.serving.router.contract import Needs, Occupancy, RouterView
from kvcache_sim.serving.sequence import Arrival


class VllmDataParallel:
    """The least max(own, waiting + running) + 6 × waiting × max(0, KV use − 0.5), from a turning start.

    Own requests are those this router sent that are not finished. Waiting, running and KV use are the last
    report (``router.view.interval``: 100 ms in vLLM), to whose waiting requests each choice adds one until
    the next report. Ranks are met from a start that moves on by one with each choice; the first of equals
    takes it.

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
        own, n = self._view.requests(), len(report.waiting)
        met = ((self._start + step) % n for step in range(n))
        chosen = min(met, key=lambda rank: self.score(report, own, rank))
        report.waiting[chosen] += 1
        self._start = self.next_start(self._start, n)
        return chosen

    def score(self, report: Occupancy, own: Sequence[int], rank: int) -> float:
        """Return what is least for the rank that takes a request; ``own``: unfinished ones sent, by rank."""
        waiting, use = report.waiting[rank], report.kv_use[rank]
        queued = max(own[rank], waiting + report.running[rank])
        return queued + (6 * waiting * max(0.0, use - 0.5) if waiting > 0 else 0.0)

    def next_start(self, start: int, ranks: int) -> int:
        """Return the rank that the next choice meets first."""
        return (start + 1) % ranks

    def _last_report(self) -> Occupancy:
        loads = self._view.loads
        if self._report is None or loads.looks != self._looks or loads.looks < 0:
            waiting, running, kv_use = loads.occupancy()
            self._report, self._looks = Occupancy([*waiting], running, kv_use), loads.looks
        return self._report


class VllmDataParallelWaiting(VllmDataParallel):
    """The least 4 × waiting + running, the first of equals: the balancer of vLLM's releases up to about 0.10.

    Its reports are taken and added to as those of ``VllmDataParallel``; ranks are always met from the first.
    """

    def score(self, report: Occupancy, own: Sequence[int], rank: int) -> float:
        """Return what is least for the rank that takes a request."""
        return 4 * report.waiting[rank] + report.running[rank]

    def next_start(self, start: int, ranks: int) -> int:
        """Return the rank that the next choice meets first."""
        return start

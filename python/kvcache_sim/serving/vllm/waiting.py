"""Who waits under vLLM's scheduler: in order of arrival, or by (priority, arrival, number)."""

from __future__ import annotations

from bisect import insort

from kvcache_sim.serving.vllm.sequence import VllmSequence


def rank(s: VllmSequence) -> tuple[int, int]:
    """Return (priority, arrival): the greatest is preempted first."""
    return s.state.priority, s.state.arrival_ns


class Waiting(list[VllmSequence]):
    """The queue, its first request in front."""

    def __init__(self, by_priority: bool) -> None:
        super().__init__()
        self._by_priority = by_priority

    def add(self, s: VllmSequence) -> None:
        """Queue a request that has arrived."""
        if self._by_priority:
            insort(self, s, key=lambda other: (*rank(other), other.state.request))
        else:
            self.append(s)

    def add_preempted(self, s: VllmSequence) -> None:
        """Queue a request that was preempted: in front of those that came, or by its priority."""
        if self._by_priority:
            self.add(s)
        else:
            self.insert(0, s)

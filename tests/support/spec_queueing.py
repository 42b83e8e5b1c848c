"""The specification with rules of the waiting queue that no seed asks for: a model of the core's.

An order gives each waiting request a key, and the smallest is admitted first; ties go to the request that
came first. It looks at the first 256 requests: the longest cached prefix, the fewest tokens left to
compute, the smallest priority of the trace, the later turn, or RAGCache's largest ratio of cached to
computed tokens, where a request that was passed 32 times goes before all. Scheduler-aware eviction makes
what the next requests of the queue will reuse the most recently used, so that it is evicted last
(CachedAttention's lookahead window). A request whose next block another one is computing right now may
wait for it (``duplicate_prefill: wait``).
"""

from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Any

from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.workload.trace import Trace

from support.spec_prefetch import WINDOW

#: RAGCache: a request that was passed so often goes before all.
_PASSED = 32

#: (request, its cached tokens, how often a later one was admitted before it) → key.
Key = Callable[[SequenceState, int, int], tuple[float, ...]]


def _ragcache(s: SequenceState, cached: int, passed: int) -> tuple[float, ...]:
    computed = max(s.prefill_target_tokens - cached, 1)
    return float(passed < _PASSED), -cached / computed


def _priority(s: SequenceState, cached: int, passed: int) -> tuple[float, ...]:
    return s.priority, s.arrival_ns


#: Queue order → key of a waiting request; the priorities of ``program-fcfs`` are the starts of programs.
ORDERS: dict[str, Key] = {
    "longest-prefix": lambda s, cached, passed: (-cached,),
    "shortest-first": lambda s, cached, passed: (s.prefill_target_tokens - cached,),
    "priority": _priority,
    "program-fcfs": _priority,
    "later-turns": lambda s, cached, passed: (-s.turn,),
    "ragcache": _ragcache,
}


class QueueRules(Scheduler):
    """A scheduler with a queue order, a lookahead window, or requests that wait for another's block."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._order = ORDERS.get(self.replica.queue_order)
        if self._order is not None:
            self._window = WINDOW
        #: How often each waiting request was passed.
        self._passed: dict[int, int] = {}
        #: The request that is next but waits for another one.
        self._staying: SequenceState | None = None

    def _cached_blocks(self, s: SequenceState) -> int:
        return self.store.peek(s.request, self.cache.matchable_blocks(s.prefill_target_tokens))[0]

    def _head(self, now: int) -> SequenceState | None:
        s = self._first(now)
        self._staying = s if s is not None and self._waits_for_another(s) else None
        return s if self._staying is None else None

    def _first(self, now: int) -> SequenceState | None:
        candidates, order = self._candidates(now), self._order
        if not candidates or order is None or candidates[0].preemptions:
            return candidates[0] if candidates else None

        def key(s: SequenceState) -> tuple[float, ...]:
            cached = self._cached_blocks(s) * self.cache.block_size_tokens
            return order(s, cached, self._passed.get(s.request, 0))

        return min(candidates, key=key)

    def _asks_first(self, head: SequenceState | None) -> bool:
        return super()._asks_first(head or self._staying)

    def _waits_for_another(self, s: SequenceState) -> bool:
        if self.replica.duplicate_prefill != "wait":
            return False
        limit, block = self.cache.matchable_blocks(s.prefill_target_tokens), self.cache.block_size_tokens
        found = self._cached_blocks(s)
        others = [*self.running.values(), *(one.sequence for one in (*self.loading.values(), *self.loaded))]
        return found < limit and computed_by_any(s.trace, s, found, block, others)

    # -- the lookahead window

    def enqueue(self, s: SequenceState) -> None:
        super().enqueue(s)
        self._protect(self.waiting)

    def _admit_one(self, s: SequenceState, now: int) -> bool:
        self._protect(other for other in self.waiting if other is not s)
        before = list(takewhile(lambda other: other is not s, self.waiting))
        admitted = super()._admit_one(s, now)
        if admitted:
            for other in before:
                self._passed[other.request] = self._passed.get(other.request, 0) + 1
            self._passed.pop(s.request, None)
        return admitted

    def _protect(self, waiting: Iterable[SequenceState]) -> None:
        """Make the cached blocks of the next waiting requests the most recently used."""
        window = self.cache.scheduler_aware_window
        if window and self.cache.accounting == "detailed":
            for s in reversed(list(islice(waiting, window))):
                end = self._cached_blocks(s)
                if end:
                    self.store.touch(s.request, end)


def computed_by_any(
    trace: Trace, s: SequenceState, block: int, block_size_tokens: int, others: Iterable[SequenceState]
) -> bool:
    """Return True if one of ``others``, which run or load, is to compute block number ``block`` of ``s``.

    Ids are chained, so two prompts have a block in common if its id has the same position in both.
    """
    index = block * block_size_tokens // trace.block_size

    def block_id(request: int) -> int | None:
        at = int(trace.id_offsets[request]) + index
        return int(trace.block_ids[at]) if at < trace.id_offsets[request + 1] else None

    wanted = block_id(s.request)
    return wanted is not None and any(block_id(other.request) == wanted for other in others)

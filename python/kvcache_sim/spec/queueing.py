"""Rules of the waiting queue beyond first come, first served (semantics 5).

An order gives each waiting request a key, and the smallest is admitted first; ties go to the request that
came first. It looks at the first 256 requests: the longest cached prefix, the fewest tokens left to
compute, the smallest priority of the trace, the later turn, or RAGCache's largest ratio of cached to
computed tokens, where a request that was passed 32 times goes before all. Scheduler-aware eviction makes
what the next requests of the queue will reuse the most recently used, so that it is evicted last
(CachedAttention's look-ahead window). A request whose next block another one is computing right now may
wait for it (``duplicate_prefill: wait``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from kvcache_sim.spec.request import SequenceState
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim._core import Store

#: An order looks at so many waiting requests: it bounds the cost.
WINDOW = 256
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


def protect(
    store: Store, waiting: Iterable[SequenceState], window: int, matchable: Callable[[SequenceState], int]
) -> None:
    """Make the cached blocks of the first ``window`` waiting requests the most recently used."""
    for s in reversed(list(islice(waiting, window))):
        end = store.peek(s.request, matchable(s))[0]
        if end:
            store.touch(s.request, end)


def computed_by_any(
    trace: Trace, s: SequenceState, block: int, block_size_tokens: int, others: Iterable[SequenceState]
) -> bool:
    """Return whether one of ``others``, which run or load, is to compute block number ``block`` of ``s``.

    Ids are chained, so two prompts have a block in common when its id stands at the same place in both.
    """
    place = block * block_size_tokens // trace.block_size

    def block_id(request: int) -> int | None:
        at = int(trace.id_offsets[request]) + place
        return int(trace.block_ids[at]) if at < trace.id_offsets[request + 1] else None

    wanted = block_id(s.request)
    return wanted is not None and any(block_id(other.request) == wanted for other in others)

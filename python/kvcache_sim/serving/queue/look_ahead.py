"""Scheduler-aware eviction: what the next requests of the queue will reuse is evicted last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.serving.sequence import SequenceState


class LookAhead:
    """Keeps the cached blocks of the first ``window`` waiting requests the most recently used, on all tiers.

    The next one's are the very last to go. Source: CachedAttention (ATC 2024), its look-ahead eviction window
    over the scheduler's queue. Cost: a look-up and a walk for each request of the window.
    """

    def __init__(self, store: TieredStore, window: int, matchable_blocks: Callable[[int], int]) -> None:
        self._store = store
        self._window = window
        self._matchable = matchable_blocks

    def protect(self, waiting: Iterable[SequenceState]) -> None:
        """Touch what the queue's first requests have in the cache, the next one's last."""
        for s in reversed(list(islice(waiting, self._window))):
            end = self._store.peek(s.request, self._matchable(s.prefill_target_tokens))[0]
            if end:
                self._store.touch(s.request, end)

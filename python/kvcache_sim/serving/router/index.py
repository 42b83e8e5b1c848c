"""The router's own index: delayed, bounded in size, with false and missed hits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from kvcache_sim.cache.store import GpuStore
from kvcache_sim.engine import Engine
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Look
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import RouterSettings


class RouterIndex:
    """A bounded LRU store of prompts per machine, compared with the machines' real caches.

    A request's full prompt blocks enter it ``index_delay_ns`` after they are computed; evictions on a machine
    are never reported. An indexed block that is not on the machine is a false hit, a block on the machine
    that is not indexed is a missed hit. Both are counted in blocks, over all machines and decisions.
    """

    def __init__(
        self,
        truth: Callable[[Arrival], Look],
        stores: Sequence[GpuStore],
        replicas: Sequence[NativeReplica],
        engine: Engine,
        settings: RouterSettings,
    ) -> None:
        self._truth = truth
        self._stores = stores
        self._engine = engine
        self._delay_ns = settings.index_delay_ns
        self._capacity = settings.index_blocks or 0
        self._matchable = replicas[0].cache.matchable_blocks
        #: Pending insertions (time in ns, index of the store, request, blocks), in order of time.
        self._news: deque[tuple[int, int, int, int]] = deque()
        self.false_hit_blocks = 0
        self.missed_hit_blocks = 0
        block = replicas[0].cache.block_size_tokens
        for position, replica in enumerate(replicas):
            replica.when_prefilled(partial(self._computed, position, block))

    def look(self, sequence: Arrival) -> Look:
        """Return the indexed blocks of each machine, with the current active blocks."""
        self._learn()
        truth = self._truth(sequence)
        limit = self._matchable(sequence.prompt_num_tokens)
        believed = [store.peek(sequence.request, limit)[0] for store in self._stores]
        for index, found in zip(believed, truth.found_blocks, strict=True):
            self.false_hit_blocks += max(index - found, 0)
            self.missed_hit_blocks += max(found - index, 0)
        return Look(believed, truth.private_blocks, believed)

    def forget(self, stores: Sequence[GpuStore]) -> None:
        """Restart with empty stores; pending insertions still arrive."""
        self._stores = stores

    def _computed(self, position: int, block: int, request: int, prompt_tokens: int) -> None:
        blocks = min(prompt_tokens // block, self._capacity)
        self._news.append((self._engine.now_ns + self._delay_ns, position, request, blocks))

    def _learn(self) -> None:
        now = self._engine.now_ns
        while self._news and self._news[0][0] <= now:
            _, position, request, blocks = self._news.popleft()
            store = self._stores[position]
            known = store.peek(request, blocks)[0]
            lease = store.acquire(request, known)
            freeing_moves = store.reserve(lease, blocks - known, now)
            assert freeing_moves == [], "no lease outlives its prompt, so every other block may be evicted"
            store.commit(lease, blocks)
            store.release(lease, now)

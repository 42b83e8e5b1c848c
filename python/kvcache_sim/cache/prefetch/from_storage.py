"""Prefetching from an engine's last tier, and the engine's rules of how long a request waits for it."""

from __future__ import annotations

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.prefetch.policy import PrefetchPolicy
from kvcache_sim.cache.prefetch.queued import PrefetchQueued
from kvcache_sim.cache.settings import StoragePrefetch
from kvcache_sim.cache.store import PrefetchingStore
from kvcache_sim.engine import TRANSFER


class StoragePrefetcher:
    """Starts a prefetch when a request comes; says, where that could be admitted, whether it waits (HiCache).

    ``best-effort``: not at all, what has come is used; ``wait``: to the end; ``timeout``: for so long from
    the first time that it could have been admitted.
    """

    #: Sessions are not told of ahead.
    lead_ns = 0

    def __init__(
        self, mover: Mover, store: PrefetchingStore, settings: StoragePrefetch, block_size_tokens: int
    ) -> None:
        self.mover, self.store, self.settings = mover, store, settings
        self.policy: PrefetchPolicy = PrefetchQueued()
        self._block = block_size_tokens
        self._waits_ns: dict[int, int] = {}
        self._until_ns: dict[int, int] = {}

    @property
    def blocks(self) -> int:
        """Blocks brought up so far."""
        return self.store.prefetched_blocks

    def start(self, request: int, limit: int, now_ns: int) -> None:
        """Bring up what the storage has behind the known part of the first ``limit`` blocks."""
        if asked := self.store.start_prefetch(request, limit, now_ns):
            self._waits_ns[request] = self.settings.wait_ns(asked * self._block)
        self.mover.issue()

    def holds_back(self, request: int, now_ns: int) -> bool:
        """Return whether a request that could be admitted now still waits; if not, its prefetch ends."""
        if not self.store.is_prefetching(request):
            return False
        if self.settings.stop == "wait":
            return True
        if self.settings.stop == "timeout":
            until = self._until_ns.get(request)
            if until is None:
                until = self._until_ns[request] = now_ns + self._waits_ns[request]
                engine = self.mover.engine
                engine.schedule(until, TRANSFER, self.mover.machine, lambda _: self.mover.moved())
            if now_ns < until:
                return True
        self.store.stop_prefetch(request)
        return False

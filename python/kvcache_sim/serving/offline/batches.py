"""Offline batches: the requests of a trace in groups, each of which begins when the last has ended.

What a reinforcement-learning run does: roll a batch of prompts out, update the weights, which empties the
caches, and roll out the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.engine import ARRIVAL, NO_MACHINE, Engine
from kvcache_sim.serving.membership.emptying import empty_caches
from kvcache_sim.serving.offline.settings import OfflineSettings
from kvcache_sim.serving.replica.native import NativeReplica


class Batches:
    """Lets requests arrive batch by batch, in file order within a batch."""

    def __init__(
        self,
        settings: OfflineSettings,
        requests: int,
        replicas: Sequence[NativeReplica],
        trees: Sequence[MarkingStore | None],
        engine: Engine,
    ) -> None:
        self._settings, self._requests, self._engine = settings, requests, engine
        self._replicas, self._trees = replicas, trees
        self._arrive: Callable[[int], None] | None = None
        self._next = 0
        self._open = 0

    def start(self, arrive: Callable[[int], None]) -> None:
        """Begin with the first batch; ``arrive`` takes the number of each request."""
        self._arrive = arrive
        self._begin()

    def closed(self) -> None:
        """Hear that a request is done; after the last one of a batch the next begins."""
        self._open -= 1
        if not self._open and self._next < self._requests:
            self._engine.schedule(self._engine.now_ns, ARRIVAL, NO_MACHINE, self._end)

    def _end(self, _: object) -> None:
        if self._settings.flush:
            for replica, tree in zip(self._replicas, self._trees, strict=True):
                empty_caches(replica, tree, self._requests)
        self._begin()

    def _begin(self) -> None:
        at_ns = self._engine.now_ns + (self._settings.pause_ns if self._next else 0)
        last = min(self._next + self._settings.batch_requests, self._requests)
        assert self._arrive is not None, "the first batch has begun"
        for request in range(self._next, last):
            self._engine.schedule(at_ns, ARRIVAL, NO_MACHINE, self._arrive, request)
        self._open, self._next = last - self._next, last

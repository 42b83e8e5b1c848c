"""Hints of a trace's rows, obeyed when a request is done: close, demote, a time to live."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.cache.store import ALL_BLOCKS, NO_MOVE, MarkingStore
from kvcache_sim.engine import MEMBERSHIP, NO_MACHINE, Engine, Event
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.tiers import COMPUTE, STAGING
from kvcache_sim.workload.retention import CLOSE, DEMOTE
from kvcache_sim.workload.trace import NO_SESSION, NOT_TOLD, Trace, view


class RetentionHints:
    """Drops what requests say is of no further use, on the machine that served them.

    ``close``: what no other session has used there. ``demote``: copies on the GPU whose blocks are on the
    tier below. A time to live: what nobody has used since, so long after the request was done. What running
    requests hold stays. Cost: the prompt's ids a request.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: Sequence[AnyReplica],
        trees: Sequence[MarkingStore | None],
        engine: Engine,
    ) -> None:
        self._hints, self._live_ns = view(trace.retention), view(trace.live_ns)
        self._ids, self._offsets = view(trace.block_ids), view(trace.id_offsets)
        self._session = view(trace.session)
        self._per_id = trace.block_size // replicas[0].cache.block_size_tokens
        self._replicas, self._trees, self._engine = replicas, trees, engine
        #: By machine: id → the last request that used it, and the first session that did; None: several have.
        self._last: list[dict[int, int]] = [{} for _ in replicas]
        self._only: list[dict[int, int | None]] = [{} for _ in replicas]
        #: Expiries to come, and requests that are not done: after the last one nothing expires.
        self._to_come: dict[int, Event] = {}
        self._open = len(trace)
        self.dropped_blocks = 0

    def closed(self, request: int, machine: int) -> None:
        """Hear that a request is done on a machine."""
        last, only = self._last[machine], self._only[machine]
        session = self._session[request]
        own = session if session != NO_SESSION else -2 - request
        for place in range(self._offsets[request], self._offsets[request + 1]):
            name = self._ids[place]
            last[name] = request
            only[name] = own if only.setdefault(name, own) == own else None
        hint, live_ns = self._hints[request], self._live_ns[request]
        if hint == CLOSE:
            self._drop(request, machine, self._first(request, lambda name: only[name] == own))
        elif hint == DEMOTE:
            self._demote(request, machine)
        if live_ns != NOT_TOLD:
            at_ns = self._engine.now_ns + live_ns
            event = self._engine.schedule(at_ns, MEMBERSHIP, NO_MACHINE, self._expire, (request, machine))
            self._to_come[request] = event
        self._open -= 1
        if not self._open:
            for event in self._to_come.values():
                self._engine.cancel(event)

    def _expire(self, done: tuple[int, int]) -> None:
        request, machine = done
        del self._to_come[request]
        last = self._last[machine]
        self._drop(request, machine, self._first(request, lambda name: last[name] == request))

    def _first(self, request: int, holds: Callable[[int], bool]) -> int | None:
        """Return the first of a prompt's ids of which something holds; it then does of those behind it."""
        start, end = self._offsets[request], self._offsets[request + 1]
        return next((place - start for place in range(start, end) if holds(self._ids[place])), None)

    def _drop(self, request: int, machine: int, place: int | None) -> None:
        tree, replica = self._tree(machine)
        parts = tree.copies(request, ALL_BLOCKS)
        if place is not None and parts and parts[-1][0] > place * self._per_id:
            for tier in range(replica.tiers - 1, -1, -1):
                self.dropped_blocks += tree.remove(request, (place * self._per_id, parts[-1][0]), tier)

    def _demote(self, request: int, machine: int) -> None:
        tree, replica = self._tree(machine)
        parts = tree.copies(request, ALL_BLOCKS)
        if replica.tiers == 1 or not parts:
            return
        start, first = 0, 0
        for end, copies in parts:
            if copies[STAGING] != NO_MOVE:
                first = end  # a block behind this one alone can go
            start = end
        self.dropped_blocks += tree.remove(request, (first, start), COMPUTE) if first < start else 0

    def _tree(self, machine: int) -> tuple[MarkingStore, AnyReplica]:
        tree, replica = self._trees[machine], self._replicas[machine]
        assert tree is not None, "hints are refused where blocks have no names"
        replica.catch_up(self._engine.now_ns)
        return tree, replica

"""Hints of a trace's rows, applied when a request finishes: close, demote, a time to live."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.base.tiers import COMPUTE, STAGING
from kvcache_sim.cache.store import NO_MOVE, BlockRange
from kvcache_sim.engine import MEMBERSHIP, NO_MACHINE, Event
from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.serving.sequence import Sent
from kvcache_sim.workload.members import CLOSE, DEMOTE
from kvcache_sim.workload.trace import NO_SESSION, NOT_GIVEN, Trace, view


class RetentionHints:
    """Drops blocks that a request's hints mark as unused, on the machine that served it.

    ``close``: blocks that no other session used there. ``demote``: GPU copies of blocks that are on the tier
    below. A time to live: blocks not used since, that long after the request finished. Blocks of running
    requests stay. Cost per request: O(ids of its prompt).
    """

    def __init__(self, trace: Trace, kept: KeptPrompts) -> None:
        self._hints, self._live_ns = view(trace.retention), view(trace.live_ns)
        self._ids, self._offsets = view(trace.block_ids), view(trace.id_offsets)
        self._session = view(trace.session)
        self._per_id = trace.block_size // kept.block_size_tokens
        self._kept, self._engine = kept, kept.engine
        #: By machine: id → the last request that used it, and its only session; None: several sessions.
        self._last: list[dict[int, int]] = [{} for _ in kept.replicas]
        self._only: list[dict[int, int | None]] = [{} for _ in kept.replicas]
        #: Pending expiries, and unfinished requests: after the last request nothing expires.
        self._to_come: dict[int, Event] = {}
        self._open = len(trace)
        self.dropped_blocks = 0

    def closed(self, request: int, machine: int) -> None:
        """Apply the hints of a request that finished on a machine."""
        last, only = self._last[machine], self._only[machine]
        session = self._session[request]
        owner = session if session != NO_SESSION else -2 - request
        for index in range(self._offsets[request], self._offsets[request + 1]):
            name = self._ids[index]
            last[name] = request
            only[name] = owner if only.setdefault(name, owner) == owner else None
        hint, live_ns = self._hints[request], self._live_ns[request]
        if hint == CLOSE:
            self._drop(request, machine, self._first(request, lambda name: only[name] == owner))
        elif hint == DEMOTE:
            self._demote(request, machine)
        if live_ns != NOT_GIVEN:
            at_ns = self._engine.now_ns + live_ns
            event = self._engine.schedule(at_ns, MEMBERSHIP, NO_MACHINE, self._expire, Sent(request, machine))
            self._to_come[request] = event
        self._open -= 1
        if not self._open:
            for event in self._to_come.values():
                self._engine.cancel(event)

    def _expire(self, done: Sent) -> None:
        request, machine = done
        del self._to_come[request]
        last = self._last[machine]
        self._drop(request, machine, self._first(request, lambda name: last[name] == request))

    def _first(self, request: int, holds: Callable[[int], bool]) -> int | None:
        """Return the first id of a prompt for which ``holds`` is true; it is then true for all later ids."""
        start, end = self._offsets[request], self._offsets[request + 1]
        return next((index - start for index in range(start, end) if holds(self._ids[index])), None)

    def _drop(self, request: int, machine: int, index: int | None) -> None:
        if index is not None:
            self.dropped_blocks += self._kept.drop(machine, request, index * self._per_id)

    def _demote(self, request: int, machine: int) -> None:
        tree, parts = self._kept.left(machine, request)
        if self._kept.replicas[machine].tiers == 1 or not parts:
            return
        start, first = 0, 0
        for end, copies in parts:
            if copies[STAGING] != NO_MOVE:
                first = end  # only the blocks after this one can be dropped
            start = end
        self.dropped_blocks += tree.remove(request, BlockRange(first, start), COMPUTE) if first < start else 0

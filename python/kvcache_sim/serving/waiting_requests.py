"""Requests that wait for others: next turns of closed-loop clients, and all requests of an instant run.

A request of an instant run arrives when the blocks of the previous request are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kvcache_sim.serving.lanes import LaneFeed
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.workload.sessions import predecessors
from kvcache_sim.workload.trace import NO_REQUEST, Trace, view


class WaitingRequests:
    """The requests of a trace by the requests that they wait for.

    With ``in_order`` none waits. Cost: one sort of the requests; each released request is visited once.
    """

    def __init__(self, trace: Trace, in_order: bool) -> None:
        waits_for = np.full(len(trace), NO_REQUEST) if in_order else predecessors(trace)
        #: Requests that wait for none, in file order; those of plays that start later are left out.
        self.alone = np.flatnonzero(waits_for == NO_REQUEST)
        self._lanes: LaneFeed | None = None
        if len(trace.play) and not in_order:
            self._lanes = LaneFeed(trace, self.alone)
            self.alone = self._lanes.at_first
        waiting = np.flatnonzero(waits_for != NO_REQUEST)
        waited_for = waits_for[waiting]
        #: Unfinished requests that a request still waits for, if it waits for several.
        self._missing: dict[int, int] = {}
        if len(trace.also_after) and not in_order:
            waiting = np.concatenate([waiting, trace.also_after[:, 0]])
            waited_for = np.concatenate([waited_for, trace.also_after[:, 1]])
            several, counts = np.unique(waiting, return_counts=True)
            self._missing = dict(zip(several[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))
        order = np.argsort(waited_for, kind="stable")
        #: Requests that wait for request r: ``_waiting[_first[r]:_first[r + 1]]``.
        self._waiting = view(waiting[order])
        self._first = view(np.searchsorted(waited_for[order], np.arange(len(trace) + 1)))

    def __bool__(self) -> bool:
        """Return True if any request waits for another."""
        return len(self._waiting) > 0 or self._lanes is not None

    def pop_followers(self, request: int) -> Iterator[int]:
        """Yield the requests that a finished request releases; call it once per request."""
        for index in range(self._first[request], self._first[request + 1]):
            following = self._waiting[index]
            if following in self._missing:
                self._missing[following] -= 1
                if self._missing[following]:
                    continue
            yield following
        if self._lanes is not None:
            yield from self._lanes.closed(request)


class OneByOne:
    """Queues the next request of an instant run once no move to or from an engine's own tier is in flight.

    Cost: two calls per event of a machine with an engine's own tier.
    """

    def __init__(self, replicas: Sequence[NativeReplica], queue_next: Callable[[], None]) -> None:
        #: Replicas with a tier of an engine's own below the GPU.
        self._tiered = [replica for replica in replicas if replica.cache.lower_semantics is not None]
        self._queue_next = queue_next
        #: True if a request has left and the next request is not queued yet.
        self._waits = False
        for replica in self._tiered:
            replica.after_each_event(self._event_ended)

    def closed(self) -> None:
        """Queue the next request after a request has left, now or when the last move has finished.

        A replica reports a request after the event in which it left.
        """
        self._waits = True
        if not self._tiered:
            self.check()

    def check(self) -> None:
        """Queue the next request if a request has left and no move is in flight."""
        if self._waits and not any(replica.core.open_moves for replica in self._tiered):
            self._resume()

    def _event_ended(self, replica: NativeReplica) -> None:
        # Moves that the event started after the last move finished do not count.
        was_drained = replica.core.take_drained()
        others = (other.core.open_moves for other in self._tiered if not (was_drained and other is replica))
        if self._waits and not any(others):
            self._resume()

    def _resume(self) -> None:
        self._waits = False
        self._queue_next()

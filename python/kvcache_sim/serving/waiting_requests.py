"""Which requests wait for others to finish: the next turns of closed-loop clients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvcache_sim.workload.sessions import predecessors
from kvcache_sim.workload.trace import NO_REQUEST, Trace, view


class WaitingRequests:
    """The requests of a trace by the one, or the several, that they wait for.

    With ``in_order`` none waits. Cost: one sort of the requests; each that is let go is looked at once.
    """

    def __init__(self, trace: Trace, in_order: bool) -> None:
        waits_for = np.full(len(trace), NO_REQUEST) if in_order else predecessors(trace)
        #: Those that wait for none, in file order.
        self.alone = np.flatnonzero(waits_for == NO_REQUEST)
        waiting = np.flatnonzero(waits_for != NO_REQUEST)
        waited_for = waits_for[waiting]
        #: How many more must finish before a request that waits for several arrives.
        self._missing: dict[int, int] = {}
        if len(trace.also_after) and not in_order:
            waiting = np.concatenate([waiting, trace.also_after[:, 0]])
            waited_for = np.concatenate([waited_for, trace.also_after[:, 1]])
            several, counts = np.unique(waiting, return_counts=True)
            self._missing = dict(zip(several[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))
        order = np.argsort(waited_for, kind="stable")
        #: Those that wait for request r are ``_waiting[_first[r]:_first[r + 1]]``.
        self._waiting = view(waiting[order])
        self._first = view(np.searchsorted(waited_for[order], np.arange(len(trace) + 1)))

    def __bool__(self) -> bool:
        """Return whether any request waits for another."""
        return len(self._waiting) > 0

    def let_go_by(self, request: int) -> Iterator[int]:
        """Yield those that waited for a request alone, or for it last; call it once, when it has finished."""
        for place in range(self._first[request], self._first[request + 1]):
            following = self._waiting[place]
            if following in self._missing:
                self._missing[following] -= 1
                if self._missing[following]:
                    continue
            yield following

"""Lanes at run time: which play starts when, and idle times that are cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.engine import Engine, Event
from kvcache_sim.workload.trace import PREPARATION, Trace, view


class LaneFeed:
    """Starts the next play when one has ended, and the first of each lane when the preparation has.

    ``opens`` are the requests that wait for no request of their play. Cost: a few operations a request.
    """

    def __init__(self, trace: Trace, opens: NDArray[np.int64]) -> None:
        self._play, self._lanes = view(trace.play), trace.lanes.count
        plays = int(trace.play.max(initial=PREPARATION)) + 1
        #: Unfinished requests by play, those of the preparation last.
        self._left = np.bincount(trace.play % (plays + 1), minlength=plays + 1).tolist()
        by_play = opens[np.argsort(trace.play[opens], kind="stable")]
        self._opens = view(by_play)
        self._first = np.searchsorted(trace.play[by_play], np.arange(plays + 1)).tolist()
        self._started = 0
        #: Requests that arrive at their own time from the start of the run.
        self.at_first = by_play[: self._first[0]]
        if not self._left[PREPARATION]:
            self.at_first = np.sort(np.array([*self._start(self._lanes)], np.int64))

    def closed(self, request: int) -> Iterator[int]:
        """Yield the first requests of the plays that start as a request has finished."""
        play = self._play[request]
        self._left[play] -= 1
        if not self._left[play]:
            yield from self._start(self._lanes if play == PREPARATION else 1)

    def _start(self, plays: int) -> Iterator[int]:
        first, self._started = self._started, min(self._started + plays, len(self._first) - 1)
        yield from self._opens[self._first[first] : self._first[self._started]]


class IdleCaps:
    """Timers of requests that wait for no request any more; they move forward while nothing is in flight.

    Once the last request in flight has returned, the next one comes within the limit; the others keep their
    distances from it. The limit of a tree counts requests and timers of one play.
    """

    def __init__(self, engine: Engine, trace: Trace, queue: Callable[[int, int], None]) -> None:
        self._engine, self._queue = engine, queue
        self._play = view(trace.play)
        self._caps_ns = (trace.lanes.idle_cap_ns, trace.lanes.tree_idle_cap_ns)
        #: The events of the requests that are still to come.
        self.timers: dict[int, Event] = {}
        self._in_flight: dict[int, int] = {}
        self._all = 0

    def arrived(self, request: int) -> None:
        """Count a request that is in flight now."""
        self.timers.pop(request, None)
        play = self._play[request]
        self._in_flight[play] = self._in_flight.get(play, 0) + 1
        self._all += 1

    def closed(self, request: int) -> None:
        """Move timers forward if no request is in flight any more; all followers have their timers."""
        play = self._play[request]
        self._in_flight[play] -= 1
        self._all -= 1
        of_all_ns, of_tree_ns = self._caps_ns
        if of_tree_ns is not None and not self._in_flight[play]:
            self._move([one for one in self.timers if self._play[one] == play], of_tree_ns)
        if of_all_ns is not None and not self._all:
            self._move([*self.timers], of_all_ns)

    def _move(self, requests: list[int], within_ns: int) -> None:
        if not requests:
            return
        by_ns = min(self.timers[one][0] for one in requests) - self._engine.now_ns - within_ns
        for one in requests if by_ns > 0 else ():
            event = self.timers[one]
            self._engine.cancel(event)
            self._queue(one, event[0] - by_ns)

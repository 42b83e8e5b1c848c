"""The event loop: a heap of tuples, a total order, integer nanoseconds, no wall clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kvcache_sim.errors import InvariantError, UsageError
from kvcache_sim.units import LAST_NS

# Priorities at one instant, each with its reason.
TRANSFER = 0  # what has arrived is there before anyone looks for it
ARRIVAL = 1  # every request of this instant is in its queue before a scheduler looks
BOUNDARY = 2  # a scheduler composes its next step from all of the above
HANDOVER = 3  # what machines tell each other at their boundaries is heard after all of these
SAMPLE = 4  # observers see the instant as it ends

#: Machine index of events that belong to no machine; they come first.
NO_MACHINE = -1

Callback = Callable[[Any], None]
#: (time_ns, priority, machine, number on that machine, callback, argument)
Event = tuple[int, int, int, int, Callback, Any]


def beyond_time() -> UsageError:
    """Return the refusal of a run whose clock would pass ``LAST_NS``."""
    return UsageError(
        "simulated time would pass 73 years",
        expected="a run that ends",
        hint="look for a slow channel, long latencies, overheads and offsets, or arrivals far apart",
    )


class Engine:
    """A priority queue of events, ordered by (time, priority, machine, that machine's own counter).

    The counter is the machine's own, not the queue's, so the order on one machine never depends on how many
    events another one needed.
    """

    def __init__(self, machines: int = 0) -> None:
        self.now_ns = 0
        self.processed = 0
        self._heap: list[Event] = []
        self._numbers = [0] * (machines + 1)
        self._cancelled: set[tuple[int, int]] = set()

    def schedule(
        self, time_ns: int, priority: int, machine: int, callback: Callback, argument: Any = None
    ) -> Event:
        """Queue ``callback(argument)``; return its event.

        InvariantError for a time that has passed (I5), UsageError for one beyond ``LAST_NS``.
        """
        if time_ns < self.now_ns:
            raise InvariantError("I5: an event in the past", got=f"{time_ns} ns at {self.now_ns} ns")
        if time_ns > LAST_NS:
            raise beyond_time()
        number = self._numbers[machine + 1]
        self._numbers[machine + 1] = number + 1
        event = (time_ns, priority, machine, number, callback, argument)
        heappush(self._heap, event)
        return event

    @property
    def idle(self) -> bool:
        """Whether nothing is queued."""
        return len(self._heap) == len(self._cancelled)

    def cancel(self, event: Event) -> None:
        """Take a queued event back; it is dropped when its turn comes."""
        self._cancelled.add((event[2], event[3]))

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> bool:
        """Process events up to and including ``until_ns``, at most ``max_events``; True when none is left."""
        heap, cancelled = self._heap, self._cancelled
        left = -1 if max_events is None else max_events
        while heap and left != 0:
            if until_ns is not None and heap[0][0] > until_ns:
                return False
            time_ns, _, machine, number, callback, argument = heappop(heap)
            if cancelled and (machine, number) in cancelled:
                cancelled.remove((machine, number))
                continue
            self.now_ns = time_ns
            self.processed += 1
            left -= 1
            callback(argument)
        return not heap

"""The event loop: a heap of tuples, a total order, integer nanoseconds, no wall clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kvcache_sim.errors import InvariantError, UsageError
from kvcache_sim.units import LAST_NS

# Priorities at one instant, each with its reason.
MEMBERSHIP = -1  # a machine that is lost does nothing at that instant; one that joins is there
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
    events another one needed. Events of which only their own machine takes note are kept apart
    (``schedule_own``): it may do what comes after them ahead of the clock, before ``others_ns``.
    """

    def __init__(self, machines: int = 0) -> None:
        self.now_ns = 0
        self.processed = 0
        self._heap: list[Event] = []
        #: Events that concern their own machine alone.
        self._own: list[Event] = []
        self._until_ns: int | None = None
        self._numbers = [0] * (machines + 1)
        self._cancelled: set[tuple[int, int]] = set()
        #: Machines whose events are dropped.
        self._silent: set[int] = set()

    def schedule(
        self, time_ns: int, priority: int, machine: int, callback: Callback, argument: Any = None
    ) -> Event:
        """Queue ``callback(argument)``; return its event.

        InvariantError for a time that has passed (I5), UsageError for one beyond ``LAST_NS``.
        """
        event = self._event(time_ns, priority, machine, callback, argument)
        heappush(self._heap, event)
        return event

    def schedule_own(
        self, time_ns: int, priority: int, machine: int, callback: Callback, argument: Any = None
    ) -> Event:
        """As ``schedule``, for what no other machine takes note of."""
        event = self._event(time_ns, priority, machine, callback, argument)
        heappush(self._own, event)
        return event

    def _event(self, time_ns: int, priority: int, machine: int, callback: Callback, argument: Any) -> Event:
        if time_ns < self.now_ns:
            raise InvariantError("I5: an event in the past", got=f"{time_ns} ns at {self.now_ns} ns")
        if time_ns > LAST_NS:
            raise beyond_time()
        number = self._numbers[machine + 1]
        self._numbers[machine + 1] = number + 1
        return time_ns, priority, machine, number, callback, argument

    @property
    def others_ns(self) -> int:
        """Before when nothing happens but machines' own events; now where that is not known."""
        if not self._heap:
            return self.now_ns
        until = self._until_ns
        return self._heap[0][0] if until is None else min(self._heap[0][0], until + 1)

    @property
    def next_ns(self) -> int | None:
        """When the next event comes, one that was taken back included; None where nothing is queued."""
        firsts = [queue[0][0] for queue in (self._heap, self._own) if queue]
        return min(firsts, default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued."""
        return len(self._heap) + len(self._own) == len(self._cancelled)

    def cancel(self, event: Event) -> None:
        """Take a queued event back; it is dropped when its turn comes."""
        self._cancelled.add((event[2], event[3]))

    def silence(self, machine: int) -> None:
        """Drop all events of a machine from now on; those of its number alone, whatever they are."""
        self._silent.add(machine)

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> bool:
        """Process events up to and including ``until_ns``, at most ``max_events``; True when none is left."""
        heap, own, cancelled, silent = self._heap, self._own, self._cancelled, self._silent
        left = -1 if max_events is None else max_events
        self._until_ns = until_ns
        while (heap or own) and left != 0:
            first = own if own and (not heap or own[0] < heap[0]) else heap
            if until_ns is not None and first[0][0] > until_ns:
                return False
            time_ns, _, machine, number, callback, argument = heappop(first)
            if cancelled and (machine, number) in cancelled:
                cancelled.remove((machine, number))
                continue
            if silent and machine in silent:
                continue
            self.now_ns = time_ns
            self.processed += 1
            left -= 1
            callback(argument)
        return not heap and not own

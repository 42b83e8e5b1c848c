"""The event loop: a heap of tuples, a total order, integer nanoseconds, no wall clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from kvcache_sim.base.errors import InvariantError, UsageError
from kvcache_sim.base.units import LAST_NS

# Priorities of events at the same time, each with its reason.
MEMBERSHIP = -1  # a lost machine does nothing at that time; a joining machine exists
TRANSFER = 0  # transfers complete before any lookup
ARRIVAL = 1  # every request of this time is queued before a scheduler runs
BOUNDARY = 2  # a scheduler composes its next step
HANDOVER = 3  # messages that machines send at step boundaries are delivered after all boundaries
SAMPLE = 4  # observers see the state after all other events of this time

#: Machine index of events that belong to no machine; they sort first.
NO_MACHINE = -1

Callback = Callable[[Any], None]
#: (time_ns, priority, machine, per-machine counter, callback, argument)
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

    The counter belongs to the machine, not to the queue, so the order on one machine never depends on the
    number of events of another machine. Events that affect only their own machine are kept in a separate
    queue (``schedule_own``): the machine may process them before the clock reaches them, up to ``others_ns``.
    """

    def __init__(self, machines: int = 0) -> None:
        self.now_ns = 0
        self.processed = 0
        #: The last in order of the events of this instant so far: (priority, machine).
        self.latest = (MEMBERSHIP, NO_MACHINE)
        self._heap: list[Event] = []
        #: Events that affect only their own machine.
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

        Raises InvariantError for a time in the past (I5), UsageError for a time beyond ``LAST_NS``.
        """
        event = self._event(time_ns, priority, machine, callback, argument)
        heappush(self._heap, event)
        return event

    def schedule_own(
        self, time_ns: int, priority: int, machine: int, callback: Callback, argument: Any = None
    ) -> Event:
        """Queue an event that affects only its own machine; otherwise like ``schedule``."""
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
        """Time before which only machines' own events happen; now if it is unknown."""
        if not self._heap:
            return self.now_ns
        until = self._until_ns
        return self._heap[0][0] if until is None else min(self._heap[0][0], until + 1)

    @property
    def next_ns(self) -> int | None:
        """Time of the next event, cancelled events included; None if the queue is empty."""
        firsts = [queue[0][0] for queue in (self._heap, self._own) if queue]
        return min(firsts, default=None)

    @property
    def idle(self) -> bool:
        """True if no event is queued."""
        return len(self._heap) + len(self._own) == len(self._cancelled)

    def cancel(self, event: Event) -> None:
        """Cancel a queued event; it is dropped when it becomes due."""
        self._cancelled.add((event[2], event[3]))

    def silence(self, machine: int) -> None:
        """Drop all present and future events of a machine."""
        self._silent.add(machine)

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> bool:
        """Process events up to and including ``until_ns``, at most ``max_events``; True if none is left."""
        heap, machine_events, cancelled, silent = self._heap, self._own, self._cancelled, self._silent
        left = -1 if max_events is None else max_events
        self._until_ns = until_ns
        while (heap or machine_events) and left != 0:
            first = machine_events if machine_events and (not heap or machine_events[0] < heap[0]) else heap
            if until_ns is not None and first[0][0] > until_ns:
                return False
            time_ns, priority, machine, number, callback, argument = heappop(first)
            if cancelled and (machine, number) in cancelled:
                cancelled.remove((machine, number))
                continue
            if silent and machine in silent:
                continue
            key = priority, machine
            if time_ns != self.now_ns or key > self.latest:
                self.now_ns, self.latest = time_ns, key
            self.processed += 1
            left -= 1
            callback(argument)
        return not heap and not machine_events

"""The machines that serve: a plan's events on the engine, and a router over the current machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kvcache_sim.base.errors import InvariantError
from kvcache_sim.engine import MEMBERSHIP, NO_MACHINE, Engine, Event
from kvcache_sim.serving.membership.plan import MembershipEvent, MembershipPlan
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.sequence import Arrival


class Requests(Protocol):
    """The owner of the open requests."""

    def send(self, request: int) -> None:
        """Route a request, for the first time or again."""
        ...

    def fail(self, request: int) -> None:
        """Close a request that no machine will serve."""
        ...

    @property
    def open_requests(self) -> int:
        """Requests that have arrived and are not closed."""
        ...


class Membership:
    """The machines that serve, and the machine of each request. Each change rebuilds the router.

    A lost machine's events and blocks are dropped. Cost: one event per change, and one decision per request
    of a lost machine.
    """

    def __init__(
        self,
        plan: MembershipPlan,
        replicas: Sequence[NativeReplica],
        make_router: Callable[[Sequence[NativeReplica]], Router],
        engine: Engine,
    ) -> None:
        self._plan, self._replicas, self._engine = plan, replicas, engine
        self._make_router = make_router
        self._serving = plan.serving_at_start(len(replicas))
        self._router: Router | None = None
        self._next = 0
        self._event: Event | None = None
        #: True once every request is finished: no further event happens.
        self._over = False
        #: Open requests by number → their machine, and the requests that wait for a machine.
        self._machine_of: dict[int, int] = {}
        self._held: list[int] = []
        #: Numbers of the lost machines, and the callbacks for each loss.
        self.lost: set[int] = set()
        self.when_lost: list[Callable[[int], None]] = []
        self.counts = dict.fromkeys(("joined", "drained", "lost", "retried", "failed"), 0)
        #: Open requests by machine, and the number of requests assigned so far.
        self.requests_by_machine = [0] * len(replicas)
        self.chosen = 0
        #: Time of the first assignment.
        self.first_ns: int | None = None
        self._when_left: Callable[[int, int, int], None] | None = None

    @property
    def serving(self) -> Sequence[int]:
        """The machines that are sent requests, in order."""
        return self._serving

    def start(self, requests: Requests) -> None:
        """Queue the first event of the plan."""
        self._requests = requests
        self._changed()
        self._queue_next()

    def choose(self, arrival: Arrival) -> NativeReplica | None:
        """Return a request's machine; None if no machine serves: the request waits, or has failed."""
        if self.first_ns is None:
            self.first_ns = self._engine.now_ns
        chosen = NO_MACHINE if self._router is None else self._router.choose(arrival)
        if chosen == NO_MACHINE:
            if any(event.change == "join" for event in self._plan.events[self._next :]):
                self._held.append(arrival.request)
            else:
                self._fail(arrival.request)
            return None
        machine = self._serving[chosen]
        self._machine_of[arrival.request] = machine
        self.requests_by_machine[machine] += 1
        self.chosen += 1
        return self._replicas[machine]

    def closed(self, request: int, is_last: bool) -> None:
        """Forget a finished request; after the last request the fleet no longer changes."""
        machine = self._machine_of.pop(request, None)
        if machine is not None:
            self.requests_by_machine[machine] -= 1
            if self._when_left is not None:
                self._when_left(machine, request, self.requests_by_machine[machine])
        self._over = is_last
        if is_last and self._event is not None:
            self._engine.cancel(self._event)
            self._event = None

    def when_left(self, notify: Callable[[int, int, int], None]) -> None:
        """Call back for each finished request: its machine, its number, and the requests left there."""
        self._when_left = notify

    def join(self, machine: int) -> None:
        """Add a machine to those that serve."""
        self._serving = sorted({*self._serving, machine})
        self._changed()
        self.counts["joined"] += 1

    def drain(self, machine: int) -> None:
        """Send a machine no further requests."""
        self._leave(machine)
        self.counts["drained"] += 1

    def _leave(self, machine: int) -> None:
        if machine in self._serving:
            self._serving.remove(machine)
        self._changed()

    def _queue_next(self) -> None:
        if self._next < len(self._plan.events) and not self._over:
            event = self._plan.events[self._next]
            self._event = self._engine.schedule(event.at_ns, MEMBERSHIP, NO_MACHINE, self._happens, event)

    def _happens(self, event: MembershipEvent) -> None:
        self._next, self._event = self._next + 1, None
        if event.change == "join":
            self.join(event.machine)
        elif event.change == "drain":
            self.drain(event.machine)
        else:
            self._leave(event.machine)
            self.counts["lost"] += 1
        held, self._held = self._held, []
        if event.change == "lose":
            held += self._lose(event.machine)
        for request in held:
            self._requests.send(request)
        in_flight = len(self._machine_of) + len(self._held)
        if in_flight != self._requests.open_requests:
            raise InvariantError(
                "I1: requests were lost with a machine", got=f"{in_flight} of {self._requests.open_requests}"
            )
        self._queue_next()

    def _lose(self, machine: int) -> list[int]:
        """Drop a machine; return the requests to route again; the others have failed."""
        self._replicas[machine].catch_up(self._engine.now_ns)
        self._engine.silence(machine)
        self.lost.add(machine)
        for notify in self.when_lost:
            notify(machine)
        gone = sorted(request for request, chosen in self._machine_of.items() if chosen == machine)
        for request in gone:
            del self._machine_of[request]
        self.requests_by_machine[machine] = 0
        if self._plan.in_flight == "fail":
            for request in gone:
                self._fail(request)
            return []
        self.counts["retried"] += len(gone)
        return gone

    def _fail(self, request: int) -> None:
        self.counts["failed"] += 1
        self._requests.fail(request)

    def _changed(self) -> None:
        self._router = (
            self._make_router([self._replicas[m] for m in self._serving]) if self._serving else None
        )

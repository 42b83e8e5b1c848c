"""A cluster: arrival, routing and closing of requests, and the next turns of closed-loop clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.engine import ARRIVAL, BOUNDARY, HANDOVER, NO_MACHINE
from kvcache_sim.serving.handover.pools import Pools
from kvcache_sim.serving.lanes import IdleCaps
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.sequence import Arrival, Sent, Status
from kvcache_sim.serving.waiting_requests import OneByOne, WaitingRequests
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import NO_REQUEST, NOT_GIVEN, OPEN_LOOP, Trace, view

if TYPE_CHECKING:
    from kvcache_sim.serving.membership.membership import Membership
    from kvcache_sim.serving.retention.hints import RetentionHints
    from kvcache_sim.serving.tenants.cache_quota import CacheQuotas
    from kvcache_sim.serving.tenants.gate import TenantGate

ReadOn = Callable[[list[int]], "Trace | None"]

#: The kind of an arrival's record in a machine's digest.
_ARRIVE = 1


class Cluster:
    """Feeds a trace to the replicas. Open-loop requests arrive at their time, in file order within an
    instant; a closed-loop request arrives its think time after the request it waits for has finished.
    With ``instant`` replicas each request arrives, in file order, when the previous request has left.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: Sequence[NativeReplica],
        pools: Pools,
        router: Router,
        recorder: Recorder,
        digests: list[_core.Digest],
    ) -> None:
        self.replicas = replicas
        self._scrapes, self._when_closed = pools.views.scrapes, pools.views.when_closed
        self.pools, self.router = pools, router
        self.engine = replicas[0].engine
        self.recorder = recorder
        #: Digests of arrivals, one per machine; a machine's own records may be written later.
        self.digests = digests
        #: The machines that serve, if they change, and the first arrival of each open request.
        self._membership: Membership | None = None
        self._first_arrivals: dict[int, int] = {}
        #: The gate at which requests wait for their tenant's turn, and the policies that drop blocks.
        self._gate: TenantGate | None = None
        #: Notified of the machine on which a request finished: quotas of tenants, hints of the trace.
        self._retention: list[CacheQuotas | RetentionHints] = []
        self._served_by: dict[int, int] = {}
        #: True if requests are fed: they may be aborted, and the machine of each is remembered.
        self._is_fed = False
        #: Starts the native arrival path (no event of the engine per request); takes the reader of windows.
        self._come_in: Callable[[ReadOn | None], None] | None = None
        self.arrived = 0
        self.closed = 0
        self._instant = any(replica.settings.instant for replica in replicas)
        self._one_by_one = OneByOne(replicas if self._instant else (), self._queue_next)
        self._waiting = WaitingRequests(trace, in_order=self._instant)
        lanes, self._caps = trace.lanes, None
        if lanes.idle_cap_ns is not None or lanes.tree_idle_cap_ns is not None:
            self._caps = IdleCaps(self.engine, trace, self._queue_at)
        #: Arrivals of the requests that wait for none; a closed-loop request arrives its think time after 0.
        arrival_ns = np.where(trace.think_ns != OPEN_LOOP, trace.think_ns, trace.arrival_ns)
        opens = self._waiting.alone
        #: Requests that wait for none, in order of arrival.
        self.order = opens if self._instant else opens[np.argsort(arrival_ns[opens], kind="stable")]
        self.first_arrivals_ns = arrival_ns
        self._order = view(self.order)
        #: Under ``prefetch: session``: each request's next turn, and the machine that served it.
        self._continues: list[int] = []
        self.machines: dict[int, int] = {}
        if any(replica.prefetches_sessions for replica in replicas):
            self._continues = continuations(trace).tolist()
        #: Reader of the next window of a trace that is read in windows, and the open requests.
        self._read_on: ReadOn | None = None
        self._open: set[int] = set()
        self.look_at(trace, 0, arrival_ns)
        self._position = 0
        #: True if no request waits for another and no observer needs the end of a request.
        self.open_loop = not (self._instant or self._continues or self._waiting)
        if self._scrapes is not None and self.open_loop and not pools.decoding:
            self._scrapes.for_arrivals_only()
        for replica in replicas:
            replica.when_closed(self._closed)

    def look_at(self, trace: Trace, first: int, arrival_ns: NDArray[np.int64]) -> None:
        """Take the columns of requests from number ``first`` on."""
        self.trace, self._from = trace, first
        self._arrival_ns, self._think_ns = view(arrival_ns), view(trace.think_ns)
        self._input_tokens, self._output_tokens = view(trace.input_tokens), view(trace.output_tokens)
        self._session, self._turn = view(trace.session), view(trace.turn)
        self._conversational = view(trace.is_conversational_turn)
        self._priority = view(trace.priority) if len(trace.priority) else None
        self._abort_after_ns = view(trace.abort_after_ns) if len(trace.abort_after_ns) else None
        self._history_tokens = view(trace.history_tokens) if len(trace.history_tokens) else None

    def read_on(self, next_window: ReadOn) -> None:
        """Continue with windows of further requests, which wait for none and come in time order.

        ``next_window`` receives the open requests and returns None after the last window.
        """
        self._read_on = next_window

    def start(self) -> None:
        """Queue the first arrival."""
        if self._membership is not None:
            self._membership.start(self)
        if self._come_in is not None:
            self._come_in(self._read_on)
        elif self._caps is not None and not self.trace.preparation:
            for request in self._order:
                self._queue_at(request, self._arrival_ns[request])
        else:
            self._queue_next()

    def feed(self, trace: Trace) -> None:
        """Add requests that wait for none, at their arrivals; all earlier requests have arrived."""
        self._is_fed = True
        first = self._from + len(self.trace)
        self.look_at(trace, first, trace.arrival_ns)
        for row, arrival_ns in enumerate(trace.arrival_ns.tolist()):
            self.engine.schedule(arrival_ns, ARRIVAL, NO_MACHINE, self._arrive, first + row)

    def change_members_by(self, membership: Membership) -> None:
        """Follow a plan of machines that join, drain or fail; UsageError if clients abort requests."""
        if self._abort_after_ns is not None:
            expected = "a trace without cancellations, or a fleet that stays"
            raise UsageError("requests are given up and machines change", "fleet.plan", expected=expected)
        self._membership = membership

    def hold_at(self, gate: TenantGate) -> None:
        """Hold requests at a gate before they are routed; UsageError if clients abort requests."""
        if self._abort_after_ns is not None:
            expected = "a trace without cancellations, or tenants without max_in_flight and tokens_per_s"
            raise UsageError("requests are given up while they wait", "tenants", expected=expected)
        self._gate, self.open_loop = gate, False
        gate.open_to(self._admit)

    def count(self, arrived: int, closed: int) -> None:
        """Count requests that arrived or left on the native arrival path."""
        self.arrived, self.closed = self.arrived + arrived, self.closed + closed

    @property
    def is_plain(self) -> bool:
        """True if requests are routed at arrival and no observer in Python needs each request."""
        has_observers = self._scrapes or self._when_closed or self._retention or self._continues
        return self.open_loop and not (has_observers or self._membership)

    def come_in_by(self, come_in: Callable[[ReadOn | None], None]) -> None:
        """Use the native arrival path: no event of the engine per request."""
        self._come_in = come_in

    def drop_by(self, policy: CacheQuotas | RetentionHints) -> None:
        """Register a policy that drops blocks when a request finishes."""
        self._retention.append(policy)

    def _admit(self, request: int) -> None:
        if self._scrapes is not None:
            self._scrapes.expect(self.engine.now_ns)
        self.send(request)

    @property
    def open_requests(self) -> int:
        """Requests that have arrived, do not wait at a gate, and are not closed."""
        return self.arrived - self.closed - (len(self._gate) if self._gate is not None else 0)

    def send(self, request: int) -> None:
        """Route a request whose machine was lost, or that waited for a machine to join."""
        self.recorder.starts_again(request, self._first_arrivals[request])
        self._route(self._arrival(request, self.engine.now_ns))

    def fail(self, request: int) -> None:
        """Close a request that was lost with its machine."""
        arrival = self._arrival(request, self._first_arrivals[request])
        self._close_unserved(arrival, Status.FAILED, NO_MACHINE)

    def _next_window(self, read_on: ReadOn) -> None:
        arrived = self._from + len(self.trace)
        trace = read_on(sorted(self._open))
        if trace is not None:
            self.look_at(trace, arrived, trace.arrival_ns)
            self._order, self._position = view(np.arange(arrived, arrived + len(trace))), 0

    def _queue_next(self) -> None:
        if self._position == len(self._order) and self._read_on is not None:
            self._next_window(self._read_on)
        if self._position < len(self._order):
            request = self._order[self._position]
            self._position += 1
            arrival = max(self._arrival_ns[request - self._from], self.engine.now_ns)
            self.engine.schedule(arrival, ARRIVAL, NO_MACHINE, self._arrive_in_order, request)
            if self._scrapes is not None:
                self._scrapes.expect(arrival)

    def _arrive_in_order(self, request: int) -> None:
        self._arrive(request)
        if not self._instant:
            self._queue_next()

    def _arrive(self, request: int) -> None:
        self.arrived += 1
        if self._caps is not None:
            self._caps.arrived(request)
        if self._read_on is not None:
            self._open.add(request)
        if self._membership is not None or self._gate is not None:
            self._first_arrivals[request] = self.engine.now_ns
        if self._gate is not None:
            self._gate.arrive(request)
            return
        self._route(self._arrival(request, self.engine.now_ns))

    def _arrival(self, request: int, now_ns: int) -> Arrival:
        row = request - self._from
        return Arrival(
            request,
            now_ns,
            self._input_tokens[row],
            self._output_tokens[row],
            self._session[row],
            self._turn[row],
            bool(self._conversational[row]),
            priority=0 if self._priority is None else self._priority[row],
            history_tokens=NOT_GIVEN if self._history_tokens is None else self._history_tokens[row],
        )

    def _end_boundaries(self) -> None:
        """Run the boundaries of this instant that precede the one which caused this arrival."""
        for replica in self.replicas:
            if (BOUNDARY, replica.machine) < self.engine.latest:
                replica.catch_up(self.engine.now_ns + 1)

    def _route(self, arrival: Arrival) -> None:
        now, request = self.engine.now_ns, arrival.request
        if self.engine.latest[0] >= BOUNDARY:
            self._end_boundaries()
        if self._membership is None:
            replica = self.pools.route(arrival, self.router)
        else:
            chosen = self._membership.choose(arrival)
            if chosen is None:
                return
            replica = chosen
        machine = replica.machine
        if self._continues:
            self.machines[request] = machine
        if self._retention or self._is_fed:
            self._served_by[request] = machine
        self.digests[machine].record(_ARRIVE, now, request, arrival.prompt_num_tokens)
        if replica.records_all:
            self.recorder.log_milestone("arrive", arrival, machine, now)
        if self.pools.can_serve(replica, arrival.prompt_num_tokens, arrival.total_kv_tokens):
            replica.arrive(arrival)
            aborts = self._abort_after_ns
            if aborts is not None and (after := aborts[request - self._from]) != NOT_GIVEN:
                self.engine.schedule(
                    now + after, ARRIVAL, NO_MACHINE, self._client_leaves, Sent(request, machine)
                )
        else:
            self._close_unserved(arrival, Status.REJECTED, machine)

    def reject(self, request: int, machine: int, arrival_ns: int) -> None:
        """Close a request that does not fit its machine."""
        self._close_unserved(self._arrival(request, arrival_ns), Status.REJECTED, machine)

    def _close_unserved(self, arrival: Arrival, status: Status, machine: int) -> None:
        self.recorder.close_unserved(arrival, status, machine)
        self._closed(arrival.request)
        if self._instant:
            self._one_by_one.check()

    def abort(self, request: int) -> None:
        """Abort a request that was fed; no effect if it is finished or not yet sent to a machine."""
        machine = self._served_by.get(request, NO_MACHINE)
        if machine != NO_MACHINE:
            self._client_leaves(Sent(request, machine))

    def _client_leaves(self, sent: Sent) -> None:
        """Abort a request on the machine that it was sent to."""
        request, machine = sent
        self.replicas[machine].abort(request)

    def _closed(self, request: int) -> None:
        self.closed += 1
        self._first_arrivals.pop(request, None)
        if self._gate is not None:
            self._gate.closed()
        machine = self._served_by.pop(request, NO_MACHINE)
        if self._retention and machine != NO_MACHINE:
            # at the end of the instant: every machine has released the blocks of requests that left
            now = self.engine.now_ns
            self.engine.schedule(now, HANDOVER, NO_MACHINE, self._notify_retention, Sent(request, machine))
        if self._membership is not None:
            self._membership.closed(request, self.closed == len(self.trace))
        for notify in self._when_closed:
            notify(request)
        if self._instant:
            self._one_by_one.closed()
        if self._read_on is not None:
            self._open.discard(request)
        if self._waiting:
            self._release(request)
        if self._caps is not None:
            self._caps.closed(request)
        following = self._continues[request] if self._continues else NO_REQUEST
        if following != NO_REQUEST and self._think_ns[following] == OPEN_LOOP:
            self._prefetch(request, following, self._arrival_ns[following])

    def _notify_retention(self, done: Sent) -> None:
        for policy in self._retention:
            policy.closed(*done)

    def _release(self, request: int) -> None:
        """Queue the arrivals of the requests that wait for a finished request."""
        for following in self._waiting.pop_followers(request):
            at = self.engine.now_ns + self._think_ns[following]
            self._queue_at(following, at)
            self._prefetch(request, following, at)

    def _queue_at(self, request: int, at_ns: int) -> None:
        if self._scrapes is not None:
            self._scrapes.expect(at_ns)
        event = self.engine.schedule(at_ns, ARRIVAL, NO_MACHINE, self._arrive, request)
        if self._caps is not None:
            self._caps.timers[request] = event

    def _prefetch(self, request: int, following: int, at_ns: int) -> None:
        """Prefetch a paused session's blocks before its next turn, on the machine that has them."""
        replica = self.replicas[self.machines[request]] if self._continues else None
        if replica is None or not replica.prefetches_sessions or at_ns <= self.engine.now_ns:
            return
        when = max(at_ns - replica.prefetch_lead_ns, self.engine.now_ns)
        tokens = int(self.trace.input_tokens[following])
        self.engine.schedule(
            when, ARRIVAL, replica.machine, lambda _: replica.prefetch(following, tokens, "session")
        )

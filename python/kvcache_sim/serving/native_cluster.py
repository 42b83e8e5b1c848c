"""Replicas of the core, which keeps all machines' events in one order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kvcache_sim import _core
from kvcache_sim.cache.pool import PoolCounts, PoolNode
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.store import BlockRange
from kvcache_sim.cache.tier_rules import Lane
from kvcache_sim.engine import BOUNDARY, Event
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.replica.native_rules import PoolRules
from kvcache_sim.serving.sequence import Arrival, MostTokens

if TYPE_CHECKING:
    from kvcache_sim.serving.router.in_core import CoreRule

#: Path of a hand-over: for each hop its parallel channels.
Route = list[Lane]
#: Choice of a decode machine: the machine, the route, and the tokens expected to cross it.
Chosen = tuple[int, Route, int]


#: News of the core: the next event, (machine, request) pairs that have left, and rows of events.
_News = tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]


class Door(Protocol):
    """The native arrival path, as the replicas call it."""

    def next(self) -> bytes | None:
        """Return the next requests as ``_core.Cluster.feed`` takes them; None after the last one."""
        ...

    def closed(self, requests: list[int]) -> None:
        """Record the requests that finished."""
        ...

    def rejected(self, request: int, machine: int) -> None:
        """Close a request that does not fit its machine."""
        ...


class SharedPool:
    """The core's part of a pool: a machine without requests."""

    def __init__(self, node: PoolNode, movement: MovementSettings) -> None:
        assert isinstance(node.tree, _core.Store)
        self._node = node
        self.core = _core.Replica.of_pool(node.tree, PoolRules.of(node, movement))

    def count(self, hit_blocks: int) -> None:
        """Count the blocks stored in and read from the pool; ``hit_blocks``: hits of first admissions."""
        put, read, refused, written_bytes = self.core.pool_counts()
        self._node.count(PoolCounts(put, read, refused, hit_blocks, written_bytes))


class NativeCluster:
    """All machines of a cluster with pools, layered channels, remote reads, ranks or native arrivals.

    ``choose`` returns the decode machine of a request, None without hand-overs. ``between`` returns the
    channel of (owner, reader) over which a machine reads another; None if machines do not read each other and
    no hand-over crosses their memory. Without both, machines are independent. ``timeline`` has the events of
    channels served layer by layer; ``pool`` is the shared pool.

    Cost: one call per event of the engine that is not a machine's own. One call per hand-over for the choice,
    unless the core makes it (``decode_by``).
    """

    def __init__(
        self,
        replicas: Sequence[NativeReplica],
        choose: Callable[[int, Arrival], Chosen] | None,
        between: Callable[[int, int], _core.Channel] | None,
        recorder: Recorder,
        timeline: _core.Timeline | None = None,
        pool: SharedPool | None = None,
    ) -> None:
        self._replicas = replicas
        self._choose = choose
        self._engine = replicas[0].engine
        self._recorder = recorder
        cores = [replica.core for replica in replicas]
        apart = choose is None and between is None
        self._core = _core.Cluster(cores, between, apart, timeline, None if pool is None else pool.core)
        #: All machines of the core, the shared pool last.
        self.cores = cores if pool is None else [*cores, pool.core]
        self._pool = pool
        #: Size of a data-parallel group: consecutive machines that step together.
        self._in_step = 1
        #: The next event of all machines; with lookahead machines may run before the clock.
        self._next: Event | None = None
        self._has_lookahead = False
        #: Replicas with observers of computed prompts.
        self._prefilled_replicas: list[NativeReplica] = []
        #: Replicas that are notified after each event.
        self._observers: list[NativeReplica] = []
        #: The native arrival path, if enabled.
        self._door: Door | None = None
        #: Rows of finished requests that the core still has.
        self._rows = 0
        for replica in replicas:
            replica.share_time(self)

    def count_pool(self) -> None:
        """Update the counts of the shared pool, if any."""
        if self._pool is not None:
            self._pool.count(sum(replica.core.pool_hit_blocks for replica in self._replicas))

    def enable_lookahead(self) -> None:
        """Run the machines' own events up to the next event of another kind in one call."""
        self._has_lookahead = True

    def notify_prefilled_of(self, replica: NativeReplica) -> None:
        """Notify a replica of computed prompts after each event."""
        self._prefilled_replicas.append(replica)

    def report_events_to(self, replica: NativeReplica) -> None:
        """Notify a replica after each event of any machine."""
        self._observers.append(replica)

    def step_together(
        self, size: int, dummy_ns: Sequence[int], shared_ns: Sequence[tuple[list[int], list[int]]]
    ) -> None:
        """Group each ``size`` machines into an engine.

        By engine, ``dummy_ns`` is the step time of an idle rank, ``shared_ns`` the time of shared work.
        """
        self._core.step_together(size, dummy_ns, shared_ns)
        self._in_step = size

    def decode_by(
        self,
        rule: CoreRule,
        most_tokens: Mapping[int, int],
        between: Callable[[int, int], Route],
    ) -> None:
        """Let the core choose the decode machine, of those with the most tokens of a request that they hold.

        ``between``: the route from one machine to another.
        """
        self._core.decode_by(rule, list(most_tokens), list(most_tokens.values()), between)

    def open(
        self,
        door: Door,
        rule: CoreRule,
        routed: Sequence[int],
        digests: list[_core.Digest],
        most_tokens: list[MostTokens],
    ) -> None:
        """Open the native arrival path to the ``routed`` machines, with a routing rule.

        By machine: the digest of arrivals, and the most tokens that it holds.
        """
        self._door = door
        self._core.open(rule, routed, digests, list(most_tokens))
        self._resume(self._fed(None))

    def _fed(self, at: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
        """Pass further requests to the core; return its next event."""
        assert self._door is not None
        packed = self._door.next()
        return at if packed is None else self._core.feed(packed)

    def woken(self, machine: int) -> None:
        """Queue the next event again: the state of a machine changed."""
        self._resume(self._core.woken(machine))

    def enqueue(self, machine: int, slot: int) -> None:
        """Queue a request that arrived at a machine, by its slot there."""
        self._take_news(self._core.enqueue(machine, slot, self._engine.now_ns))

    def prefetch(self, machine: int, request: int, tokens: int) -> None:
        """Copy blocks of a request's prompt from a machine's lower tiers upwards."""
        self._take_news(self._core.prefetch(machine, (request, tokens), self._engine.now_ns))

    def abort(self, machine: int, request: int) -> None:
        """Abort a request that was sent to a machine, in any state."""
        self._take_news(self._core.abort(machine, request, self._engine.now_ns))

    def longest(self, machine: int, request: int, blocks: BlockRange) -> int | None:
        """Return the end of the longest run of a request on the lower tiers of another machine, or None.

        ``blocks``: from the first block of the run to the limit. Changes nothing.
        """
        return self._core.longest((machine, (request, *blocks)), self._engine.now_ns)

    def _take_news(self, news: _News) -> None:
        at, closed, events = news
        if events is not None:
            self._recorder.add_events(events, self._engine.now_ns)
        if closed is not None:
            self._notify_closed(closed)
        self._resume(at)
        self._event_ended()

    def _event_ended(self) -> None:
        for replica in self._observers:
            replica.event_ended()

    def _resume(self, at: tuple[int, int, int] | None) -> None:
        """Schedule the core's next event: (time in ns, priority, machine)."""
        following = self._next
        if following is not None:
            if following[:3] == at:
                return
            self._engine.cancel(following)
            self._next = None
        if at is not None:
            self._next = self._engine.schedule_own(*at, self._run, at)

    def _run(self, event: tuple[int, int, int]) -> None:
        self._next = None
        engine = self._engine
        now_ns, until_ns = engine.now_ns, engine.others_ns if self._has_lookahead else engine.now_ns
        while True:
            at, question, closed, events = self._core.run(now_ns, until_ns)
            if events is not None:
                self._recorder.add_events(events, now_ns)
            if closed is not None:
                self._notify_closed(closed)
            continues = question is not None
            if self._door is not None:
                rejected, hungry = self._core.take_rejected()
                for request, machine in rejected:
                    self._door.rejected(request, machine)
                if hungry:
                    at, before = self._fed(at), at
                    continues = at != before
            if question is not None:
                assert self._choose is not None
                machine, (request, arrival_ns), tokens, session = question
                arrival = Arrival(request, arrival_ns, tokens[0], tokens[1], *session[:3], 0, session[3])
                at = self._core.assign(*self._choose(machine, arrival))
            if at is None or not continues or at[0] >= until_ns:
                break
        self._resume(at)
        for replica in self._prefilled_replicas:
            replica.notify_prefilled()
        self._event_ended()
        if event[1] == BOUNDARY:
            for replica in self._replicas[event[2] : event[2] + self._in_step]:
                replica.check()

    def _notify_closed(self, closed: list[tuple[int, int]]) -> None:
        if self._door is None:
            for machine, request in closed:
                self._replicas[machine].notify_closed((request,))
            return
        self._rows += len(closed)
        if self._rows >= self._recorder.rows_at_a_time:
            self._recorder.add_rows(self._core.take_rows())
            self._rows = 0
        self._door.closed([request for _, request in closed])

"""A replica: one engine instance served in the core, with one call per event or per several events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvcache_sim import _core
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.moved import MovedBytes
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import check_store
from kvcache_sim.engine import ARRIVAL, BOUNDARY, TRANSFER, Event
from kvcache_sim.serving.batch_settings import BatchSettings
from kvcache_sim.serving.recorder import Recorder, StepRow
from kvcache_sim.serving.replica.contract import Load
from kvcache_sim.serving.replica.native_rules import HandoverRules, serving_rules
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import ReplicaSettings

if TYPE_CHECKING:
    from kvcache_sim.serving.schedule_log import ScheduleLog

#: Stores with blocks below the GPU.
_MOVING = (_core.Store, _core.TieredPoolStore, _core.GroupStore, _core.RadixStore)
#: Priorities of the core's phases.
_PHASES = (TRANSFER, BOUNDARY)


class KeepsTime(Protocol):
    """The owner of the event order of several replicas."""

    def woken(self, machine: int) -> None:
        """Queue the next event again: the state of a machine changed."""

    def enqueue(self, machine: int, slot: int) -> None:
        """Queue a request that arrived at a machine, by its slot there."""

    def prefetch(self, machine: int, request: int, tokens: int) -> None:
        """Copy blocks of a request's prompt from a machine's lower tiers upwards."""

    def abort(self, machine: int, request: int) -> None:
        """Abort a request that was sent to a machine."""

    def enable_lookahead(self) -> None:
        """Run the machines' own events up to the next event of another kind in one call."""

    def notify_prefilled_of(self, replica: NativeReplica) -> None:
        """Notify a replica of computed prompts after each event."""

    def report_events_to(self, replica: NativeReplica) -> None:
        """Notify a replica after each event of any machine."""


class Stepping(NamedTuple):
    """The times of steps, and what limits their batches."""

    times: _core.StepTable
    batch: BatchSettings


class NativeReplica:
    """One engine instance; the core keeps its requests and transfers, Python the clock.

    ``checks``: True checks the store's invariants at every boundary (``--check full``).
    ``handover``: rules of prompts that move to or from other machines.
    """

    def __init__(
        self,
        machine: Machine,
        settings: ReplicaSettings,
        stepping: Stepping,
        recorder: Recorder,
        checks: bool,
        handover: HandoverRules | None = None,
    ) -> None:
        self.machine = machine.number
        self.settings = settings
        self.cache: CacheSettings = machine.cache
        self.store = machine.store
        self.engine = machine.engine
        self.edges, self.tree = machine.edges, machine.tree
        #: Bytes moved between tiers, as of the last ``count_moved_bytes``.
        self.moved = MovedBytes()
        #: True if it reads other machines, or the pool.
        self.reads_others = machine.reads_others
        self.pool = machine.pool
        #: True if it computes prompts for other machines, or decodes theirs.
        self.hands_over = handover is not None
        #: Number of the machine's tiers.
        self.tiers = len(machine.tiers)
        self._occasions = machine.occasions
        #: Time before the next turn at which a paused session's blocks are prefetched.
        self.prefetch_lead_ns = machine.movement.prefetch_lead_ns
        #: True if every milestone is recorded, in addition to each request's row.
        self.records_all = recorder.window_ns is not None
        self.core = _core.Replica(
            machine.store,
            stepping.times,
            stepping.batch,
            serving_rules(machine, settings, recorder, handover),
        )
        self.load: Load = self.core
        self._recorder, self._checks = recorder, checks
        self._most_blocks = self.store.occupancy(0).capacity_blocks - machine.kept_free_blocks
        self._needs = machine.most_blocks
        #: Tokens known to fit; fewer tokens need no more blocks.
        self._held_tokens = 0
        #: Free tokens that an empty GPU needs in addition to a request's KV.
        self._headroom_tokens = settings.drafted_tokens
        if settings.scheduler == "sglang":
            from kvcache_sim.serving.engine_rules import headroom_tokens

            self._headroom_tokens = headroom_tokens(self.cache.block_size_tokens, machine.kept_free_blocks)
        self._looks_up = bool(self.cache.lookup_ns and self.cache.enabled)
        #: True if an arriving request is in the queue at once.
        self._queues_at_once = not (self._looks_up or settings.has_client_time)
        #: The machine's next own event; with ``enable_lookahead`` it may run before the clock.
        self._next: Event | None = None
        self._has_lookahead = False
        self._shared_time: KeepsTime | None = None
        self._closed: list[Callable[[int], None]] = []
        self._prefilled: list[Callable[[int, int], None]] = []
        self._after_events: list[Callable[[NativeReplica], None]] = []
        #: True once a client has aborted a request that was sent here.
        self._has_aborted = False
        #: True if recorded transfers may start when a request arrives.
        self._sends_at_arrival = self.records_all and self._occasions is not None
        #: Rows of finished requests that the core still has.
        self._rows = 0
        #: True if a request may leave as soon as it comes.
        self._turns_away = settings.turns_away
        #: True if rows stay in the core until ``take_rows``.
        self._logs_outputs = False
        if self.records_all:
            self.core.log_steps()
            self.store.log_evictions()

    # -- events

    def arrive(self, arrival: Arrival) -> None:
        """Accept a request; it is queued after the client offset and its lookup."""
        now, request = self.engine.now_ns, arrival.request
        sizes = arrival.prompt_num_tokens, arrival.output_tokens
        tokens = (*sizes, arrival.expected_prefill_tokens, arrival.history_tokens)
        session = (arrival.session, arrival.turn, arrival.is_conversational_turn, arrival.priority)
        if self._queues_at_once and self._occasions is None and not self._turns_away:
            self._resume(self.core.arrive_in_queue(request, tokens, session, now))
            return
        slot = self.core.arrive(request, tokens, session, now)
        if self._queues_at_once:
            self._enqueue(slot)
        elif (at := self.core.reaches_ns(slot)) > now:
            self.engine.schedule(at, ARRIVAL, self.machine, self._received, slot)
        else:
            self._received(slot)

    def _received(self, slot: int) -> None:
        now = self.engine.now_ns
        self.core.received(slot, now)
        if self._looks_up:
            at = now + self.cache.lookup_ns
            self.engine.schedule(at, ARRIVAL, self.machine, self._enqueue, slot)
        else:
            self._enqueue(slot)

    def _enqueue(self, slot: int) -> None:
        if self._occasions is not None and self._shared_time is not None:  # it may read other machines
            self._shared_time.enqueue(self.machine, slot)
            return
        self._resume(self.core.enqueue(slot, self.engine.now_ns))
        # this request may have been aborted before it arrived
        if self._has_aborted or self._sends_at_arrival or self._turns_away:
            self._notify(*self.core.news()[1:])

    def abort(self, request: int) -> None:
        """Abort a request that was sent here, in any state."""
        self._has_aborted = True
        if self._shared_time is not None:
            self._shared_time.abort(self.machine, request)
        else:
            at, closed, events = self.core.abort(request, self.engine.now_ns)
            self._resume(at)
            self._notify(closed, events)

    def share_time(self, clock: KeepsTime) -> None:
        """Share one event order with other machines, kept by ``clock``."""
        self._shared_time = clock

    @property
    def takes_native_arrivals(self) -> bool:
        """True if it has lookahead and no request is looked up before it is in the queue."""
        return self._has_lookahead and not self._looks_up

    def enable_lookahead(self) -> None:
        """Run its own events up to the next event of another kind in one call, as no observer needs them.

        Finished requests and computed prompts are reported early, at most by that span.
        """
        self._has_lookahead = not (self._checks or self.records_all)
        if self._shared_time is not None and self._has_lookahead:
            self._shared_time.enable_lookahead()

    def _resume(self, at: tuple[int, int] | None) -> None:
        """Schedule the core's next event: (time in ns, phase)."""
        if self._shared_time is not None:
            self._shared_time.woken(self.machine)
            return
        following = self._next
        if following is not None:
            if at is not None and following[0] == at[0] and following[5] == at[1]:
                return
            self.engine.cancel(following)
            self._next = None
        if at is not None:
            time_ns, phase = at
            self._next = self.engine.schedule_own(time_ns, _PHASES[phase], self.machine, self._run, phase)

    def _run(self, phase: int) -> None:
        self._next = None
        engine = self.engine
        until = engine.others_ns if self._has_lookahead else engine.now_ns
        at, closed, events = self.core.run(until)
        if at is not None:
            time_ns, following = at
            self._next = engine.schedule_own(time_ns, _PHASES[following], self.machine, self._run, following)
        self._notify(closed, events)
        if _PHASES[phase] == BOUNDARY:
            self.check()

    def _notify(self, closed: Sequence[int] | None, events: bytes | None) -> None:
        if events is not None:
            self._recorder.add_events(events, self.engine.now_ns)
        if self._prefilled:
            self.notify_prefilled()
        if closed is not None:
            self.notify_closed(closed)
        self.event_ended()

    def after_each_event(self, call: Callable[[NativeReplica], None]) -> None:
        """Call back after each event of this machine, once the finished requests are reported."""
        if self._shared_time is not None and not self._after_events:
            self._shared_time.report_events_to(self)
        self._after_events.append(call)

    def event_ended(self) -> None:
        """Notify the observers of an event here or on a machine in the same event order."""
        for call in self._after_events:
            call(self)

    def notify_prefilled(self) -> None:
        """Notify the observers of computed prompts."""
        if self._prefilled:
            for request, prompt_tokens in self.core.take_prefilled():
                for notify in self._prefilled:
                    notify(request, prompt_tokens)

    def notify_closed(self, closed: Sequence[int]) -> None:
        """Notify the observers of finished requests."""
        self._rows += len(closed)
        if self._rows >= self._recorder.rows_at_a_time and not self._logs_outputs:
            self._hand_over_rows()
        for request in closed:
            for notify in self._closed:
                notify(request)

    def check(self) -> None:
        """Check the store's invariants after a boundary, if ``checks`` is set."""
        if self._checks:
            check_store(self.store, self.machine, self.engine.now_ns)

    def _hand_over_rows(self) -> bytes:
        rows = self.core.take_rows()
        self._recorder.add_rows(rows)
        self._rows = 0
        return rows

    # -- live runs

    def log_outputs(self, log: _core.OutputLog) -> None:
        """Log tokens and closed requests; their rows wait for ``take_rows``, and steps run one by one."""
        self.core.log_outputs(log)
        self._logs_outputs = True

    def take_rows(self) -> bytes:
        """Return the rows of the requests that left since the last call; the recorder also receives them.

        Rows are 64-bit integers in the order of ``Recorder.row_columns``.
        """
        return self._hand_over_rows()

    # -- the rest of the contract

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before ``now_ns``, so that the store is up to date."""
        self.core.catch_up(now_ns)

    def log_schedule(self) -> None:
        """Start recording an engine's schedule."""
        self.core.log_schedule()

    def schedule(self) -> ScheduleLog | None:
        """Return the recorded schedule, None if none was recorded."""
        from kvcache_sim.serving.schedule_log import ScheduleCounts, ScheduleLog

        written = self.core.schedule()
        return None if written is None else ScheduleLog(ScheduleCounts(*written[0]), *written[1:])

    # -- prefetching

    def prefetch(self, request: int, tokens: int, occasion: str) -> None:
        """Copy a request's blocks up to the CPU tier, if the prefetch policy wants that on this occasion."""
        if self._occasions is None or occasion not in self._occasions:
            return
        if self._shared_time is not None:
            self._shared_time.prefetch(self.machine, request, tokens)
        else:
            self._resume(self.core.prefetch(request, tokens, self.engine.now_ns))
            if self._sends_at_arrival:
                self._notify(*self.core.news()[1:])

    @property
    def prefetches_sessions(self) -> bool:
        """True if a paused session's blocks may be prefetched before its next turn."""
        return self._occasions is not None and "session" in self._occasions

    @property
    def prefetched_blocks(self) -> int | None:
        """Blocks prefetched so far; None: it does not prefetch."""
        if self._occasions is None:
            return None
        counter = self.store if isinstance(self.store, _core.RadixStore) else self.core
        return counter.prefetched_blocks

    # -- queries of routers, the cluster and recorders

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return True if an empty GPU can hold that many tokens, and drafts after them."""
        if kv_tokens <= self._held_tokens:
            return True
        needed = self._needs(kv_tokens + self._headroom_tokens, self.settings.steps_in_flight)
        if needed > self._most_blocks:
            return False
        self._held_tokens = kv_tokens
        return True

    def when_closed(self, notify: Callable[[int], None]) -> None:
        """Call back with the number of each request that leaves this machine from now on."""
        self._closed.append(notify)

    def when_prefilled(self, notify: Callable[[int, int], None]) -> None:
        """Call back for each prompt computed from now on: the request's number and the prompt's tokens."""
        if self._shared_time is not None and not self._prefilled:
            self._shared_time.notify_prefilled_of(self)
        self._prefilled.append(notify)
        self.core.notify_prefilled()

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of requests that wait, run and wait for KV, and the tokens generated so far."""
        return self.core.counts()

    @property
    def steps(self) -> int:
        """Iterations so far."""
        return self.core.steps

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return decode steps with drafts, tokens drafted, and tokens accepted by position."""
        return self.core.accepted()

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens: edges, counts, count, sum, min, max."""
        return self.core.itl()

    def flush_records(self) -> None:
        """Hand the kept rows of requests, steps and evictions to the recorder, and count moved bytes."""
        self._hand_over_rows()
        for step in self.core.take_steps():
            self._recorder.log_step(self.machine, StepRow(*step))
        for now_ns, tier, blocks in self.store.take_evictions():
            self._recorder.log_eviction(self.machine, TIERS[tier], now_ns, blocks)
        self.count_moved_bytes()

    def count_moved_bytes(self) -> None:
        """Bring ``moved`` up to date."""
        self.moved.count(self.core)

    def duplicates(self, tier: int) -> int:
        """Return the number of a lower tier's blocks that also have a copy on a faster tier."""
        return self.store.duplicates(tier) if isinstance(self.store, _MOVING) else 0

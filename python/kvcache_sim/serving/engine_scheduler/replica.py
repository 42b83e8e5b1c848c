"""A replica that an engine's own scheduler serves: steps one after another, or one decided ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.prefetch.policy import Prefetches
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.engine import BOUNDARY, Event
from kvcache_sim.model.step_time import StepBatch, StepTime, StepTimeTable
from kvcache_sim.serving.batch_settings import BatchSettings
from kvcache_sim.serving.engine_scheduler.contract import EngineScheduler, Step
from kvcache_sim.serving.engine_scheduler.schedule_log import ScheduleLog
from kvcache_sim.serving.replica.arrival_path import ArrivalPath
from kvcache_sim.serving.replica.contract import Load
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.sequence import Arrival, SequenceState
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.store_check import check_store
from kvcache_sim.tiers import TIERS

S = TypeVar("S", bound=Step)


@dataclass(frozen=True, slots=True)
class StepDurations:
    """How long steps take: the model's time and what a step costs beside it, or a least time."""

    step_time: StepTime
    overhead_ns: int
    least_ns: int
    #: The model as integers where launches overlap the step before: kernels and their launch are apart there.
    table: StepTimeTable | None = None

    @classmethod
    def of_batch(cls, step_time: StepTime, batch: BatchSettings) -> StepDurations:
        """Return the durations under the settings of a batch."""
        return cls(step_time, batch.step_overhead_ns, batch.least_step_ns)

    def of(self, batch: StepBatch) -> int:
        """Return a step's time in ns."""
        return max(self.step_time.step(batch) + self.overhead_ns, self.least_ns)

    def launch(self, batch: StepBatch) -> int:
        """Return the host's time to launch a step in ns, where that overlaps the step before."""
        return 0 if self.table is None else self.table.launch(batch)

    def tail(self, batch: StepBatch) -> int:
        """Return when a step ends after its launch, in ns, where the GPU has waited for that."""
        return 0 if self.table is None else self.table.tail(batch)

    def kernels(self, batch: StepBatch) -> int:
        """Return the time of a step's kernels in ns, where launching them is counted apart; else a step's."""
        if self.table is None:
            return self.of(batch)
        return max(self.table.kernels(batch) + self.overhead_ns, self.least_ns)


class EngineReplica(Generic[S]):
    """One engine instance on a machine with a GPU alone, one step at a time, with any step-time model.

    ``checks``: whether the store's invariants are checked at every boundary (``--check full``).
    """

    def __init__(
        self,
        machine: Machine,
        settings: ReplicaSettings,
        durations: StepDurations,
        milestones: Milestones,
        scheduler: EngineScheduler[S],
        checks: bool,
    ) -> None:
        self.machine = machine.number
        self.settings = settings
        self.cache = machine.cache
        self.store = machine.store
        self.mover = machine.mover
        self.engine = machine.mover.engine
        self.prefetcher: Prefetches | None = None
        self.remote: RemoteReads | None = None
        self.tiers = 1
        self.milestones = milestones
        self.load: Load = milestones
        self.records_all = milestones.records_all
        self._arrivals = ArrivalPath(machine, settings, milestones, self._enqueue)
        self._durations = durations
        self.scheduler = scheduler
        #: The step that is being computed, and the one that follows it.
        self._flight: S | None = None
        self._ahead: S | None = None
        #: The host launches the step in flight, before which the GPU was idle, and then decides on the next.
        self._launching = False
        self._boundary: Event | None = None
        self._steps: list[tuple[int, int, int, int]] | None = [] if self.records_all else None
        self._checks = checks
        #: Requests that were sent here and are not done.
        self._sent: dict[int, SequenceState] = {}
        milestones.when_closed(self._left)
        self.steps = 0
        if self.records_all:
            self.store.log_evictions()

    # -- arrivals

    def arrive(self, arrival: Arrival) -> None:
        """Take a request over; it queues once the scheduler has it and it has been looked up."""
        state = SequenceState.of(arrival, self.milestones.outcomes.trace)
        self._sent[arrival.request] = state
        self._arrivals.arrived(state)

    def abort(self, request: int) -> int | None:
        """Let a request go that was sent here: what waits at once, what runs at the end of its step."""
        state = self._sent.get(request)
        if state is not None and not state.given_up:
            state.given_up = True
            self.scheduler.give_up(request, self.engine.now_ns)
        return None

    def _left(self, state: SequenceState) -> None:
        self._sent.pop(state.request, None)

    def when_tokens(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Tell the requests of tokens that come out here from now on."""
        self.milestones.when_tokens(tell)

    def _enqueue(self, state: SequenceState) -> None:
        self.scheduler.enqueue(state)
        if self._flight is None and self._boundary is None:
            now = self.engine.now_ns
            self._boundary = self.engine.schedule(now, BOUNDARY, self.machine, self._at_boundary)

    # -- boundaries

    def _at_boundary(self, _: object) -> None:
        now, scheduler = self.engine.now_ns, self.scheduler
        self._boundary = None
        launched, self._launching = self._launching, False
        if self._flight is not None and not launched:
            self._end(self._flight, now)
        scheduler.let_go(now)
        if not launched:
            self._flight, self._ahead = self._ahead, None
        for _pass in range(scheduler.passes):
            if self._flight is None:
                self._flight = self._next_step(now, now)
                self._launching = self._flight is not None and self._is_launched_after(self._flight, now)
        if self._flight is None:
            scheduler.rests()
        elif not self._launching:
            if scheduler.looks_ahead:
                self._decide_ahead(self._flight, now)
            end = self._flight.end_ns
            self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)
        if self._checks:
            check_store(self.store, self.machine, self.engine.now_ns)

    def _is_launched_after(self, step: S, now: int) -> bool:
        """Come back when a step is launched that begins on an idle GPU, where that takes time; say so."""
        launch_ns = self._durations.launch(step.batch) if self.scheduler.looks_ahead else 0
        if launch_ns > 0:
            at = now + launch_ns
            self._boundary = self.engine.schedule(at, BOUNDARY, self.machine, self._at_boundary)
        return launch_ns > 0

    def _decide_ahead(self, flight: S, now: int) -> None:
        """Decide on the step behind that in flight; the host launches it at once, and then looks at tokens.

        So tokens of the step in flight are seen when both that is computed and the next one is launched, and
        the GPU computes what is launched in order. Source: ``EngineCore.step_with_batch_queue`` of
        vllm/v1/engine/core.py (0.25), with one worker in the same process (``UniProcExecutor``).
        """
        step = self.scheduler.next_step(now)
        if step is None:
            return
        if sum(step.tokens):
            launched_ns = now + self._durations.launch(step.batch)
            computed_ns = max(
                flight.computed_ns + self._durations.kernels(step.batch),
                launched_ns + self._durations.tail(step.batch),
            )
            flight.is_followed(launched_ns)
            step.lasts(flight.end_ns, computed_ns - flight.end_ns)
            self._ahead = step
        self._log(step, flight.end_ns)

    def _end(self, step: S, now: int) -> None:
        self.steps += 1
        if self._steps is not None:
            self._steps.append((step.begin_ns, step.end_ns - step.begin_ns, *step.tokens))
        self.scheduler.step_ended(step, now)
        if self.scheduler.log is not None:
            self.scheduler.log.counts.ended(now)

    def _next_step(self, now: int, begin_ns: int) -> S | None:
        """Decide on the next step, which begins at a time from now on; None where nothing is computed."""
        step = self.scheduler.next_step(now)
        if step is None:
            return None
        step.lasts(begin_ns, self._durations.of(step.batch))
        self._log(step, begin_ns)
        return step if sum(step.tokens) else None

    def _log(self, step: S, begin_ns: int) -> None:
        if self.scheduler.log is not None:
            self.scheduler.log.scheduled(begin_ns, step.tokens, self.scheduler.lengths())

    # -- what routers, the cluster and recorders ask

    def log_schedule(self) -> None:
        """Start writing the schedule down."""
        self.scheduler.log_schedule()

    def schedule(self) -> ScheduleLog | None:
        """Return what was written down of the schedule, None where nothing was."""
        return self.scheduler.log

    def catch_up(self, now_ns: int) -> None:
        """Do nothing: no step runs ahead of the clock."""

    def run_ahead(self) -> None:
        """Stay with the clock: nothing runs ahead of it here."""

    def prefetch(self, request: int, tokens: int, occasion: str) -> None:
        """Prefetch nothing: there is nowhere to prefetch from."""

    @property
    def prefetches_sessions(self) -> bool:
        """Whether a paused session's blocks may be copied up before its next turn."""
        return False

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens."""
        return self.scheduler.can_ever_hold(kv_tokens)

    def when_closed(self, tell: Callable[[int], None]) -> None:
        """Tell the number of each request that leaves this machine from now on."""
        self.milestones.when_closed(lambda s: tell(s.request))

    def when_prefilled(self, tell: Callable[[int, int], None]) -> None:
        """Tell of each request whose prompt is computed from now on: its number and its prompt's tokens."""
        self.milestones.when_prefilled(lambda s: tell(s.request, s.prompt_num_tokens))

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many requests wait, run and wait for KV, and the tokens generated so far."""
        running, waiting = self.scheduler.lengths()
        return waiting, running, 0, self.scheduler.given.tokens

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return nothing: no tokens are drafted."""
        return 0, 0, []

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens: edges, counts, count, sum, min, max."""
        return self.scheduler.given.gaps.histogram()

    def flush_records(self) -> None:
        """Hand the steps and evictions that were kept to the recorder."""
        recorder = self.milestones.recorder
        for step in self._steps or ():
            recorder.log_step(self.machine, step)
        for now_ns, tier, blocks in self.store.take_evictions():
            recorder.log_eviction(self.machine, TIERS[tier], now_ns, blocks)

"""The specification with clients that abort, which no seed asks for: a model of the core's rules of aborts.

A request that waits leaves at once; one that runs at the end of its step; one that loads at the first
boundary after all its KV has come; one that is handed over at the end of its first step on the machine that
decodes it. Its turn leaves no answer for the next one.
"""

from enum import Enum
from typing import Any

from kvcache_sim.engine import ARRIVAL, NO_MACHINE
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.spec.records import FINISH
from kvcache_sim.spec.request import SequenceState, Status
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.spec.simulator import Machine, Simulator
from kvcache_sim.workload.trace import NOT_GIVEN

from support.spec_read_buffers import BufferedChannel
from support.spec_routers import CostMilestones, expected_tokens

ABORTED: Any = Enum("Aborted", {"ABORTED": STATUSES.index("aborted")})["ABORTED"]
_ENDED = (Status.FINISHED, Status.TRANSFERRING, ABORTED)


def allow_aborts(simulator: Simulator, abort_after_ns: list[int]) -> None:
    """Let the clients of a simulator's requests abort so long after each arrival (NOT_GIVEN: never)."""
    aborted: set[int] = set()
    for machine in simulator.machines:
        machine.scheduler.__class__ = type("Aborting", (_Scheduler, type(machine.scheduler)), {})
        machine.scheduler.abort_in(simulator, machine, aborted)  # type: ignore[attr-defined]
        machine.arrive = _arriving(simulator, machine, abort_after_ns, aborted)  # type: ignore[method-assign]
        machine._looked_up = _looking_up(simulator, machine, aborted)  # type: ignore[method-assign]


def _arriving(simulator: Simulator, machine: Machine, abort_after_ns: list[int], aborted: set[int]) -> Any:
    def leave(s: SequenceState) -> None:
        if s.request in aborted or s.status in (Status.FINISHED, ABORTED):
            return
        aborted.add(s.request)
        if s.decode_machine < 0:
            machine.scheduler.abort(s)  # type: ignore[attr-defined]
            return
        there = simulator.machines[s.decode_machine].scheduler
        if s.request in there.running:  # else it is in transit, and leaves after its first step
            there.abort(s)  # type: ignore[attr-defined]

    def arrive(s: SequenceState) -> None:
        type(machine).arrive(machine, s)
        after_ns = abort_after_ns[s.request]
        if after_ns != NOT_GIVEN:
            engine = simulator.engine
            engine.schedule(engine.now_ns + after_ns, ARRIVAL, NO_MACHINE, leave, s)

    return arrive


def _looking_up(simulator: Simulator, machine: Machine, aborted: set[int]) -> Any:
    def looked_up(s: SequenceState) -> None:
        if s.request in aborted:
            _end(simulator, machine, s)
        else:
            type(machine)._looked_up(machine, s)

    return looked_up


def _end(simulator: Simulator, machine: Machine, s: SequenceState) -> None:
    """Close an aborted request."""
    s.status = ABORTED
    machine.store.note(FINISH, simulator.engine.now_ns, s.request, 0)
    machine.load.requests -= 1
    if s.prefill_end_time_ns < 0:
        machine.load.queued_tokens -= s.prompt_num_tokens
        if isinstance(machine.milestones, CostMilestones):
            machine.milestones.expected_prefill_tokens -= expected_tokens(s)
    elif s.decode_machine == machine.number:
        machine.load.queued_tokens -= s.prompt_num_tokens
    simulator.records.close(s)
    simulator._left(s)


class _Scheduler(Scheduler):
    """A scheduler whose requests may be aborted."""

    def abort_in(self, simulator: Simulator, machine: Machine, aborted: set[int]) -> None:
        """Note which requests of a run are aborted."""
        self._simulator, self._machine, self._aborted = simulator, machine, aborted
        #: Aborted requests of this machine that leave at a boundary.
        self._leave_later: dict[int, SequenceState] = {}

    def abort(self, s: SequenceState) -> None:
        """Abort a request of this machine."""
        if s in self.waiting:
            self._leave_queue(s)
            self._machine.moved()
        else:
            self._leave_later[s.request] = s
            self._machine.wake()

    def _leave_queue(self, s: SequenceState) -> None:
        self.waiting.remove(s)
        self.refused = False
        _end(self._simulator, self._machine, s)

    def compose(self, now: int) -> list[int]:
        for request, s in list(self._leave_later.items()):
            if s.status in _ENDED:
                del self._leave_later[request]
            elif request in self.running:
                del self._leave_later[request]
                self.batch.running = [own for own in self.batch.running if own.sequence is not s]
                del self.running[request]
                self._release_aborted(s, now)
            elif s in self.waiting:  # preempted meanwhile
                del self._leave_later[request]
                self._leave_queue(s)
        return super().compose(now)

    def _release_aborted(self, s: SequenceState, now: int) -> None:
        self.release(s, s.lease, now)
        self.refused = False
        _end(self._simulator, self._machine, s)

    def _join_all_loaded(self, now: int) -> None:
        for loading in [own for own in self.loaded if own.sequence.request in self._aborted]:
            coming = [own for own in loading.transfers if self.mover.transfers.get(own.move) is own]
            for load in coming:  # no step will use it, nor free its buffers
                if load.job is not None and isinstance(load.channel, BufferedChannel):
                    load.channel.allow(load.job, self.mover.layers)
            if not coming:
                self.loaded.remove(loading)
                self._leave_later.pop(loading.sequence.request, None)
                self._release_aborted(loading.sequence, now)
        for loading in [own for own in self.loaded if own.sequence.request not in self._aborted]:
            if self.batch.budget_left > 0:
                self.loaded.remove(loading)
                self.milestones.left_queue(loading.sequence, now)
                self._join_loaded(loading, now)

    def into_batch(self, s: SequenceState, prefill_target: int, blocks: int) -> None:
        super().into_batch(s, prefill_target, blocks)
        if s.request in self._aborted:
            self._leave_later[s.request] = s

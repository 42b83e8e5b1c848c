"""The specification with asynchronous scheduling, which no seed asks for: a model of the core's rules.

A step is composed as it was decided when the step before it began: what that one brought is known from its
end on. So a request that has ended holds its slot and its blocks for one more step. Where an answer ends at
a stop token, its request also runs in that step, which brings no token. The host's overhead hides under the
step, which takes at least so long.
"""

from dataclasses import replace
from itertools import count
from typing import Any

from kvcache_sim.serving.settings import MachineSettings
from kvcache_sim.spec.batch import Batch, Ended, Running
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.spec.simulator import Machine, Simulator


class AsyncSimulator(Simulator):
    """A cluster whose machines schedule one step in advance."""

    def _build(self, number: int, own: MachineSettings) -> Machine:
        if own.role == "prefill" and own.replica.async_scheduling == "stop-token":
            # A request ends here with its prompt, whose length is known.
            own = replace(own, replica=replace(own.replica, async_scheduling="length"))
        return super()._build(number, own)


class AsyncScheduler(Scheduler):
    """A scheduler that schedules one step in advance."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._async = self.replica.async_scheduling != "none"
        #: Requests by the order in which they joined the batch.
        self._joined: dict[int, int] = {}
        self._joins = count()
        #: Requests that have ended and still hold slots and blocks.
        self.leaving: dict[int, SequenceState] = {}
        #: Who came later is not known to the scheduler yet; None: everybody is.
        self._known_until_ns: int | None = None

    def _knows(self, since_ns: int) -> bool:
        return self._known_until_ns is None or since_ns <= self._known_until_ns

    def _candidates(self, now: int) -> list[SequenceState]:
        return [s for s in super()._candidates(now) if self._knows(s.since_ns)]

    def _asks_first(self, head: SequenceState | None) -> bool:
        return super()._asks_first(head) and self._knows(self.asking[0].requested_ns + 1)

    def compose(self, now: int) -> list[int]:
        capacity = super().compose(now)
        if self._async:
            for s in list(self.leaving.values()):
                self._release_space(s, now)
            self._known_until_ns = None
            if not self.batch.running:  # nothing was scheduled in advance
                capacity = super().compose(now)
        return capacity

    def into_batch(self, s: SequenceState, prefill_target: int, blocks: int) -> None:
        super().into_batch(s, prefill_target, blocks)
        self._joined[s.request] = next(self._joins)

    def _release_space(self, s: SequenceState, now: int) -> None:
        del self.leaving[s.request]
        super()._leave(s, now)

    def _preempt_last(self, now: int) -> None:
        leaving = next(reversed(self.leaving.values()), None)
        last = next(reversed(self.running.values()), None)
        if leaving is not None and (
            last is None or self._joined[leaving.request] > self._joined[last.request]
        ):
            # The request has finished, but its scheduler is not notified yet.
            if self.replica.async_scheduling == "stop-token":
                self.batch.remove_last()
            self._release_space(leaving, now)
        else:
            super()._preempt_last(now)

    def step_ended(self, finished: list[SequenceState], now: int) -> None:
        super().step_ended(finished, now)
        if self._async:
            self._known_until_ns = self.batch.begin_ns

    def _leave(self, s: SequenceState, now: int) -> None:
        if self._async:
            self.leaving[s.request] = s
        else:
            super()._leave(s, now)

    @property
    def _taken_slots(self) -> int:
        return super()._taken_slots + len(self.leaving)


class AsyncBatch(Batch):
    """A batch whose steps hide the host's overhead and may have requests that have ended."""

    def __init__(self, store: Any, replica: Any, *parts: Any) -> None:
        super().__init__(store, replica, *parts)
        self._least_step_ns = 0
        if replica.async_scheduling != "none":
            self._least_step_ns, self._overhead_ns = self._overhead_ns, 0
        self._late_ends = replica.async_scheduling == "stop-token"

    def step_ns(self) -> int:
        return max(super().step_ns(), self._least_step_ns)

    def end(self, now: int, compute_ns: int) -> Ended:
        if not self._late_ends:
            return super().end(now, compute_ns)
        self.running = [r for r in self.running if not _has_ended(r)]
        before = list(self.running)
        ended = super().end(now, compute_ns)
        self.running = before  # requests that finish now stay for one more step
        return ended


def _has_ended(r: Running) -> bool:
    return r.sequence.computed_tokens >= r.total

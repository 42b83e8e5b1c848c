"""A replica whose model is split into pipeline stages, with as many micro-batches in flight."""

from __future__ import annotations

from collections import deque

from kvcache_sim.cache.machine import Machine
from kvcache_sim.engine import BOUNDARY
from kvcache_sim.serving.engine_scheduler.contract import EngineScheduler, Step
from kvcache_sim.serving.engine_scheduler.replica import EngineReplica, S, StepDurations
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.store_check import check_store


class Stages:
    """Equal stages, one step in each at a time: when a step ends that follows others through them."""

    def __init__(self, stages: int) -> None:
        #: By stage, when the last step that entered it leaves.
        self._free_ns = [0] * stages

    def take(self, step: Step, now: int) -> None:
        """Send a decided step through, which alone takes as long as it says: it begins as the first is free.

        A stage takes its equal share of the step, what does not divide in the later ones.
        """
        duration, stages = step.end_ns - step.begin_ns, len(self._free_ns)
        at = begin = max(now, self._free_ns[0])
        for stage in range(stages):
            share = duration * (stage + 1) // stages - duration * stage // stages
            at = self._free_ns[stage] = max(at, self._free_ns[stage]) + share
        step.lasts(begin, at - begin)


class PipelinedReplica(EngineReplica[S]):
    """As many micro-batches in flight as stages; each is composed of requests that none in flight computes.

    The queue of batches is filled first; what the scheduler finds nothing for is tried again when the oldest
    batch ends, and so is a request that arrives meanwhile. Source: ``EngineCore.step_with_batch_queue`` of
    vllm/v1/engine/core.py (0.33.0), where the results of a batch come in order.
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
        super().__init__(machine, settings, durations, milestones, scheduler, checks)
        self._stages = Stages(settings.stages)
        #: The oldest first.
        self._in_flight: deque[S] = deque()

    def _at_boundary(self, _: object) -> None:
        now, scheduler = self.engine.now_ns, self.scheduler
        self._boundary = None
        if self._in_flight:
            self._end(self._in_flight.popleft(), now)
        scheduler.let_go(now)
        while len(self._in_flight) < self.settings.stages:
            step = self._next_step(now, now)
            if step is None:
                break
            self._stages.take(step, now)
            self._in_flight.append(step)
        if self._in_flight:
            end = self._in_flight[0].end_ns
            self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)
        else:
            scheduler.rests()
        if self._checks:
            check_store(self.store, self.machine, now)

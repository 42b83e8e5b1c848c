"""vLLM's scheduler as a replica asks it: who waits, the next step, what an ended one brings."""

from __future__ import annotations

from kvcache_sim.cache.machine import Machine
from kvcache_sim.serving.engine_scheduler.schedule_log import ScheduleLog
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.vllm.outputs import Outputs, VllmStep, composed
from kvcache_sim.serving.vllm.scheduler import VllmScheduler
from kvcache_sim.serving.vllm.sequence import VllmSequence
from kvcache_sim.serving.vllm.settings import vllm_rules
from kvcache_sim.tiers import COMPUTE


class VllmEngine:
    """The scheduler of one replica and its outputs."""

    passes = 1

    def __init__(self, settings: ReplicaSettings, machine: Machine, milestones: Milestones) -> None:
        rules = vllm_rules(settings, machine.store.room(COMPUTE).capacity_blocks)
        self.scheduler = VllmScheduler(rules, settings, machine, milestones)
        self._outputs = Outputs(self.scheduler)
        self.given = self._outputs.given
        self.looks_ahead = self.scheduler.looks_ahead

    @property
    def log(self) -> ScheduleLog | None:
        """The schedule, where it is written down."""
        return self.scheduler.log

    def log_schedule(self) -> None:
        """Start writing the schedule down."""
        self.scheduler.log_schedule()

    def enqueue(self, state: SequenceState) -> None:
        """Queue a request that has been looked up."""
        self.scheduler.waiting.add(VllmSequence.of(state))

    def next_step(self, now: int) -> VllmStep | None:
        """Decide on the next step; None where there are no requests."""
        scheduler = self.scheduler
        if not scheduler.running and not scheduler.waiting:
            return None
        return composed(scheduler.schedule(now), scheduler.looks_ahead)

    def step_ended(self, step: VllmStep, now: int) -> None:
        """Give out the tokens that a step has brought."""
        self._outputs.step_ended(step, now)

    def give_up(self, request: int, now: int) -> None:
        """Let a request go that its client gave up."""
        self.scheduler.give_up(request, now)

    def let_go(self, now: int) -> None:
        """Free the blocks of running requests that were given up."""
        if self.scheduler.given_up:
            self.scheduler.let_go(now)

    def rests(self) -> None:
        """Do nothing: vLLM keeps nothing from step to step."""

    def lengths(self) -> tuple[int, int]:
        """Return how many requests run and wait."""
        return len(self.scheduler.running), len(self.scheduler.waiting)

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens."""
        return self.scheduler.blocks.can_ever_hold(kv_tokens)

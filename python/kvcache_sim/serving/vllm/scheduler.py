"""What the next step computes: the running requests in order of admission, then the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcache_sim.cache.groups import Newcomer
from kvcache_sim.cache.machine import Machine
from kvcache_sim.errors import StoreError
from kvcache_sim.serving.engine_scheduler.schedule_log import ScheduleLog
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.sequence import Status
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.vllm.blocks import Entry, blocks_of
from kvcache_sim.serving.vllm.sequence import VllmSequence
from kvcache_sim.serving.vllm.settings import VllmRules
from kvcache_sim.serving.vllm.waiting import Waiting, rank
from kvcache_sim.tiers import PLACES

_NONE_BELOW = (0,) * (len(PLACES) - 1)

#: So often the most urgent requests are preempted without a token between, and no token is to come: by
#: priority, requests of one priority and arrival take each other's blocks in turn, in vLLM too, and start
#: anew each time. Who is the most urgent alone is not preempted.
_MOST_FRUITLESS = 10_000


@dataclass(slots=True)
class Composition:
    """A step while it is composed: tokens left, most tokens of one request, who has got some."""

    budget: int
    cap: int
    scheduled: list[VllmSequence] = field(default_factory=list)
    preempted: bool = False

    def give(self, s: VllmSequence, tokens: int) -> None:
        """Give a request tokens of this step."""
        s.chunk = tokens
        self.budget -= tokens
        self.scheduled.append(s)

    def take_back(self, s: VllmSequence) -> None:
        """Take back what a preempted request had of this step."""
        self.preempted = True
        if s.chunk:
            self.budget += s.chunk
            self.scheduled.remove(s)


class VllmScheduler:
    """The queue and the running requests of one replica; ``schedule`` composes a step."""

    def __init__(
        self,
        rules: VllmRules,
        settings: ReplicaSettings,
        machine: Machine,
        milestones: Milestones,
    ) -> None:
        self.rules, self.settings, self.cache, self.store = rules, settings, machine.cache, machine.store
        self.blocks = blocks_of(machine, settings.steps_in_flight)
        self.milestones = milestones
        #: Whether a step is decided while the one before it runs, and whether an answer's end is foreseen.
        self.looks_ahead = settings.async_scheduling != "none"
        self._foresees_end = settings.async_scheduling == "length"
        self.waiting = Waiting(rules.by_priority)
        #: In order of admission.
        self.running: list[VllmSequence] = []
        self.log: ScheduleLog | None = None
        #: Preemptions of the most urgent since a request last got a token.
        self._fruitless = 0
        #: Running requests whose clients have given them up.
        self.given_up: set[int] = set()

    def give_up(self, request: int, now: int) -> None:
        """Let a request go: what waits at once, what runs at the next boundary (``let_go``)."""
        s = next((s for s in self.waiting if s.state.request == request), None)
        if s is None:
            self.given_up.add(request)
            return
        s.is_done = True
        self.waiting.remove(s)
        self.milestones.aborted(s.state, now)

    def let_go(self, now: int) -> None:
        """Free the blocks of running requests that were given up; steps in flight bring them no token."""
        for s in [s for s in self.running if s.state.request in self.given_up]:
            s.is_done, s.is_running = True, False
            self.store.release(s.state.lease, now)
            self.running.remove(s)
            self.milestones.aborted(s.state, now)
        preempted = [s.state.request for s in self.waiting if s.state.request in self.given_up]
        self.given_up.clear()
        for request in preempted:
            self.give_up(request, now)

    def log_schedule(self) -> None:
        """Start writing the schedule down."""
        self.log = ScheduleLog()

    def schedule(self, now: int) -> list[VllmSequence]:
        """Return who gets tokens in the next step, each with its ``chunk``, in the order of scheduling."""
        self.blocks.begin_step()
        threshold = self.rules.long_prefill_token_threshold
        budget = self.settings.max_num_batched_tokens
        bounded = threshold > 0 and len(self.running) + len(self.waiting) > 1
        step = Composition(budget, threshold if bounded else budget)
        self._schedule_running(step, now)
        while not step.preempted and self.waiting and step.budget > 0 and self._has_place():
            if not self._admit(self.waiting[0], step, now):
                break
        return step.scheduled

    def _has_place(self) -> bool:
        return len(self.running) < self.settings.max_num_seqs

    # -- the running requests

    def _schedule_running(self, step: Composition, now: int) -> None:
        at = 0
        while at < len(self.running) and step.budget > 0:
            s = self.running[at]
            tokens = self.blocks.chunk(s, min(s.lacking(self._foresees_end), step.cap, step.budget))
            if tokens == 0:
                at += 1
                continue
            end = s.computed + tokens
            while s.is_running and not self.blocks.grow(s, end, now):
                victim = self._victim()
                self._expect_progress(victim)
                at -= victim < at
                self._preempt(step, self.running.pop(victim), now)
            if not s.is_running:
                if self.rules.by_priority:
                    continue
                return
            self.key_step(s, min(end, s.known))
            step.give(s, tokens)
            at += 1

    def _victim(self) -> int:
        """Return whose turn it is to be preempted: the last, or the first of the greatest by priority."""
        if not self.rules.by_priority:
            return len(self.running) - 1
        return max(range(len(self.running)), key=lambda at: (rank(self.running[at]), -at))

    def token_came(self) -> None:
        """Hear that a request has got a token."""
        self._fruitless = 0

    def _expect_progress(self, victim: int) -> None:
        """Raise ``StoreError`` where the most urgent requests only preempt each other."""
        if not self.rules.by_priority:
            return
        self._fruitless += rank(self.running[victim]) == min(map(rank, [*self.running, *self.waiting[:1]]))
        if self._fruitless == _MOST_FRUITLESS:
            raise StoreError(
                "requests preempt each other without end, as vLLM's would",
                "replica.scheduler",
                expected=f"a token within {_MOST_FRUITLESS} preemptions: more blocks, "
                "arrivals or priorities that differ, or reserve_full_isl: true",
            )

    def _preempt(self, step: Composition, s: VllmSequence, now: int) -> None:
        """Send a request back to the queue; what it had of this step goes back to the budget."""
        step.take_back(s)
        self.store.release(s.state.lease, now)
        computed = s.computed
        s.computed = s.blocks = s.keyed = s.placeholders = s.chunk = 0
        s.stale = s.in_flight
        s.is_running = False
        self.waiting.add_preempted(s)
        self.milestones.preempted(s.state, computed, now)
        if self.log is not None:
            self.log.counts.preempted()

    # -- the queue

    def _admit(self, s: VllmSequence, step: Composition, now: int) -> bool:
        """Admit the first of the queue with what is cached of it; False, and no change, if refused."""
        state, block = s.state, self.cache.block_size_tokens
        rules = self.rules
        asked = Newcomer(
            request=state.request,
            prompt_tokens=state.prompt_num_tokens,
            known_tokens=s.known,
            matchable_blocks=(s.known - 1) // block if self.cache.enabled else 0,
            step_tokens=min(step.cap, step.budget),
            chunk_tokens=rules.chunk_tokens(self.settings.max_num_batched_tokens),
            kept_blocks=rules.watermark_blocks if self.running else 0,
            whole=rules.reserve_full_isl,
            steps_in_flight=self.settings.steps_in_flight,
        )
        entry = self.blocks.admit(asked, now)
        if entry is None:
            return False
        self._runs(s, entry, step, now)
        return True

    def _runs(self, s: VllmSequence, entry: Entry, step: Composition, now: int) -> None:
        """Let an admitted request run: what it has room for is its first chunk."""
        s.state.lease, hits, end = entry
        block = self.cache.block_size_tokens
        cached = hits * block
        self.waiting.remove(s)
        s.blocks, s.keyed, s.computed, s.is_running = -(-end // block), hits, cached, True
        self.key_step(s, min(end, s.known))
        step.give(s, end - cached)
        self.running.append(s)
        self._admitted(s, hits, now)

    def _admitted(self, s: VllmSequence, hits: int, now: int) -> None:
        state, cached, first = s.state, s.computed, not s.was_admitted
        s.was_admitted = True
        self.milestones.admitted(state, hits, now)
        state.status = Status.PREFILLING
        if first:
            block = self.cache.block_size_tokens
            self.milestones.first_admitted(state, (hits, *_NONE_BELOW), block, cached, now)
            self.milestones.prefill_starts(state, state.prompt_num_tokens - cached, now)
        else:
            state.recomputed_tokens -= cached
        if self.log is not None:
            self.log.admitted(state.request, cached, first)

    # -- a request's part

    def key_step(self, s: VllmSequence, tokens: int) -> None:
        """Give blocks that are full within the first tokens their keys, where they have none yet."""
        if not self.cache.enabled:
            return
        limit = tokens if self.cache.cache_output else min(tokens, s.state.prompt_num_tokens)
        full = limit // self.cache.block_size_tokens
        if full > s.keyed:
            self.store.commit(s.state.lease, full)
            s.keyed = full

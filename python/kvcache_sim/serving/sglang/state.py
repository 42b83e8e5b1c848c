"""The queue, the running requests and the room of SGLang's scheduler, and what both kinds of steps share."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.serving.engine_scheduler.contract import Step
from kvcache_sim.serving.engine_scheduler.schedule_log import ScheduleLog
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.sglang.new_token_ratio import NewTokenRatio
from kvcache_sim.serving.sglang.sequence import SglangSequence
from kvcache_sim.serving.sglang.tree import PagedTree


@dataclass(slots=True)
class SglangStep(Step):
    """A decided step: its requests, each with whether it decodes, and whose prompt goes on after it."""

    members: list[tuple[SglangSequence, bool]] = field(default_factory=list)
    computes_prompts: bool = False
    chunked: SglangSequence | None = None


@dataclass(slots=True)
class Composition:
    """A step while it is composed: who is in it, and what they compute."""

    members: list[tuple[SglangSequence, bool]] = field(default_factory=list)
    chunks: list[tuple[int, int]] = field(default_factory=list)
    decodes: list[int] = field(default_factory=list)

    def step(self, computes_prompts: bool, chunked: SglangSequence | None) -> SglangStep:
        """Return the step, decided."""
        kv = self.decodes
        batch = StepBatch(tuple(self.chunks), len(kv), sum(kv), max(kv, default=0))
        return SglangStep(batch, members=self.members, computes_prompts=computes_prompts, chunked=chunked)


@dataclass(slots=True)
class SchedulerState:
    """What the scheduler knows between two steps."""

    settings: ReplicaSettings
    tree: PagedTree
    page: int
    milestones: Milestones
    ratio: NewTokenRatio
    #: In the order in which they are looked at.
    waiting: list[SglangSequence] = field(default_factory=list)
    #: Whose prompts are computed, in the order in which they joined.
    running: list[SglangSequence] = field(default_factory=list)
    #: The prompt that is computed chunk by chunk.
    chunked: SglangSequence | None = None
    #: Nobody is admitted before a running request leaves (``batch_is_full``).
    is_full: bool = False
    #: Requests with KV of their own.
    held: int = 0
    log: ScheduleLog | None = None
    #: Requests with KV whose clients have given them up.
    given_up: set[int] = field(default_factory=set)

    def log_schedule(self) -> None:
        """Start writing the schedule down."""
        self.log = ScheduleLog()

    def let_go(self) -> None:
        """Count a request out that has no KV of its own any more."""
        self.held -= 1

    def join(self, joining: list[SglangSequence], lets_in: bool) -> None:
        """Let requests run whose prompts are computed; ``lets_in``: others may be admitted again."""
        self.is_full = self.is_full and not lets_in
        self.running += joining

    def give_up(self, request: int, now: int) -> None:
        """Let a request go: what waits at once, what has KV at the next boundary (``leave_given_up``)."""
        s = next((s for s in self.waiting if s.state.request == request), None)
        if s is None:
            self.given_up.add(request)
            return
        s.is_finished = True
        self.waiting.remove(s)
        self.milestones.aborted(s.state, now)

    def leave_given_up(self, sequences: list[SglangSequence], now: int) -> None:
        """Free what those of the given requests have that were given up; a prompt's chunks are not kept."""
        for s in sequences:
            if s.state.request not in self.given_up or not s.is_held:
                continue
            if s is self.chunked:
                self.chunked = None
                self.tree.retract(s.state.request)
            else:
                self.tree.finish(s.state.request, min(s.committed, s.known))
            s.is_finished, s.is_held = True, False
            self.let_go()
            self.milestones.aborted(s.state, now)
        retracted = [s.state.request for s in self.waiting if s.state.request in self.given_up]
        self.given_up.clear()
        for request in retracted:
            self.give_up(request, now)

    def keep_running(self, kept: list[SglangSequence]) -> bool:
        """Let only the given ones go on; return whether any left, which lets others in again."""
        left = len(kept) < len(self.running)
        self.is_full = self.is_full and not left
        self.running = kept
        return left

    def leave_finishing(self) -> bool:
        """Take out those that the step in flight is known to end; return whether there are any."""
        if self.settings.async_scheduling != "length":
            return False
        return self.keep_running([s for s in self.running if not (s.steps_in_flight and s.ends_next)])

    def can_decode(self, sequences: list[SglangSequence], now: int) -> bool:
        """Return whether each can have a token more, once what may be evicted is."""
        tokens = sum(s.committed % self.page == 0 for s in sequences) * self.page
        self.tree.evict_until_free(tokens, now)
        return self.tree.free_tokens >= tokens

    def take_decodes(self, composed: Composition, sequences: list[SglangSequence], now: int) -> None:
        """Take room for a token of each, and put them into the step."""
        self.tree.evict_until_free(len(sequences) * self.page, now)
        for s in sequences:
            composed.decodes.append(s.committed)
            s.committed += 1
            s.steps_in_flight += 1
            self.tree.grow(s.state.request, s.committed)
            composed.members.append((s, True))

"""SGLang's scheduler as a replica asks it: who waits, the next step, what an ended one brings."""

from __future__ import annotations

from typing import cast

from kvcache_sim.cache.machine import Machine
from kvcache_sim.serving.engine_scheduler.contract import Given
from kvcache_sim.serving.engine_scheduler.schedule_log import ScheduleLog
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.sglang.decode import decode_step
from kvcache_sim.serving.sglang.new_token_ratio import NewTokenRatio
from kvcache_sim.serving.sglang.policy import QueueOrder
from kvcache_sim.serving.sglang.prefill import Prefill
from kvcache_sim.serving.sglang.sequence import SglangSequence
from kvcache_sim.serving.sglang.settings import tokens_beside
from kvcache_sim.serving.sglang.state import SchedulerState, SglangStep
from kvcache_sim.serving.sglang.tree import PagedTree
from kvcache_sim.tiers import COMPUTE


class SglangEngine:
    """The scheduler of one replica and its outputs."""

    #: In so many passes of the engine's loop everything has changed that can change without a step.
    passes = 3

    def __init__(self, settings: ReplicaSettings, machine: Machine, milestones: Milestones) -> None:
        self.looks_ahead = settings.async_scheduling != "none"
        self.given = Given()
        page, kept = machine.cache.block_size_tokens, machine.kept_free_blocks
        self._page, self._beside = page, tokens_beside(page, kept)
        self._most_pages = machine.store.room(COMPUTE).capacity_blocks - kept
        tree, ratio = cast(PagedTree, machine.store), NewTokenRatio(settings.schedule_conservativeness)
        self.state = SchedulerState(settings, tree, page, milestones, ratio)
        self._prefill = Prefill(self.state, QueueOrder(settings.schedule_policy, tree, page))
        #: The last step, where it computes prompts.
        self._launched: SglangStep | None = None

    @property
    def log(self) -> ScheduleLog | None:
        """The schedule, where it is written down."""
        return self.state.log

    def log_schedule(self) -> None:
        """Start writing the schedule down."""
        self.state.log_schedule()

    def enqueue(self, state: SequenceState) -> None:
        """Queue a request that has been looked up."""
        self.state.waiting.append(SglangSequence.of(state))

    def next_step(self, now: int) -> SglangStep | None:
        """Decide on the next step (``get_next_batch_to_run``); None where nothing is computed."""
        self._launched_join()
        step = self._prefill.step(now) or decode_step(self.state, now)
        self._launched = step if step is not None and step.computes_prompts else None
        return step

    def _launched_join(self) -> None:
        """Let the requests of the last step join the running ones, once their prompts are whole.

        What is computed of the prompt that goes on enters the tree.
        """
        state, launched = self.state, self._launched
        s = state.chunked
        if s is not None and s.end > s.prefix:
            state.tree.check_in(s.state.request, min(s.end, s.filled))
            s.prefix = s.end
        if launched is not None:
            going_on = (state.chunked, launched.chunked)
            joining = [s for s, _ in launched.members if not s.is_finished and s not in going_on]
            starts_anew = not state.running and bool(joining)
            state.join(joining, len(joining) < len(launched.members) or starts_anew)
        state.keep_running([s for s in state.running if not s.is_finished])

    def step_ended(self, step: SglangStep, now: int) -> None:
        """Give out the tokens that a step has brought; what it has computed goes into the tree."""
        for s, decodes in step.members:
            s.steps_in_flight -= 1
            if s.is_finished or s.is_retracted:
                continue  # a token too many, or one whose KV is gone: it is made again
            if s.middle_chunks:
                s.middle_chunks -= 1
                continue
            self._token(s, now)
            if step.computes_prompts and not decodes and not s.is_finished:
                self.state.tree.check_in(s.state.request, min(s.end, s.filled))
                s.prefix = s.end

    def _token(self, s: SglangSequence, now: int) -> None:
        state, milestones = s.state, self.state.milestones
        s.out += 1
        self.given.token(now, state.last_token_ns)
        if state.last_token_ns is not None:
            if milestones.tell_tokens is not None:
                milestones.tell_tokens((state.request,))
        else:
            state.status = Status.PREFILLING
            milestones.prefilled(state, now)
            milestones.first_token(state, now)
        state.last_token_ns = now
        if s.out < s.max_new:
            return
        s.is_finished, s.is_held = True, False
        self.state.let_go()
        self.state.tree.finish(state.request, min(s.committed, s.known))
        milestones.finished(state, now)
        if self.log is not None:
            counts = state.cached_prefix_length_used, state.preemptions
            self.log.requests.append((state.request, state.first_token_ns, now, *counts))

    def give_up(self, request: int, now: int) -> None:
        """Let a request go that its client gave up."""
        self.state.give_up(request, now)

    def let_go(self, now: int) -> None:
        """Free the KV of requests that were given up: of those that run, and of the last step's."""
        if self.state.given_up:
            launched = [] if self._launched is None else [s for s, _ in self._launched.members]
            chunked = [] if self.state.chunked is None else [self.state.chunked]
            self.state.leave_given_up([*self.state.running, *launched, *chunked], now)

    def rests(self) -> None:
        """Reserve of answers what is reserved at first, where nobody is left."""
        if not self.state.waiting:
            self.state.ratio.rests()

    def lengths(self) -> tuple[int, int]:
        """Return how many requests have KV and how many wait."""
        return self.state.held, len(self.state.waiting)

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens and what is kept beside them."""
        return -(-(kv_tokens + self._beside) // self._page) <= self._most_pages

"""The tokens that a step's end brings, in the order in which its requests were scheduled."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.serving.engine_scheduler.contract import Given, Step
from kvcache_sim.serving.sequence import Status
from kvcache_sim.serving.vllm.scheduler import VllmScheduler
from kvcache_sim.serving.vllm.sequence import VllmSequence


@dataclass(slots=True)
class VllmStep(Step):
    """A decided step: (request, tokens, whether all its known tokens are computed then) of each part."""

    parts: list[tuple[VllmSequence, int, bool]] = field(default_factory=list)


def composed(scheduled: list[VllmSequence], looks_ahead: bool) -> VllmStep:
    """Return the step of those who got tokens: these count as computed from now on."""
    parts, chunks, decodes = [], [], []
    for s in scheduled:
        tokens, s.chunk = s.chunk, 0
        if s.decodes(tokens):
            decodes.append(s.computed)
        else:
            chunks.append((tokens, s.computed))
        s.computed += tokens
        s.in_flight += tokens
        brings_token = s.computed >= s.expected
        s.placeholders += looks_ahead and brings_token
        parts.append((s, tokens, brings_token))
    batch = StepBatch(tuple(chunks), len(decodes), sum(decodes), max(decodes, default=0))
    return VllmStep(batch, parts=parts)


@dataclass(slots=True)
class Outputs:
    """Gives out the tokens of ended steps."""

    scheduler: VllmScheduler
    given: Given = field(default_factory=Given)

    def step_ended(self, step: VllmStep, now: int) -> None:
        """Give each request whose known tokens are all computed one more."""
        for s, tokens, brings_token in step.parts:
            s.in_flight -= tokens
            stale = s.stale > 0
            if stale:
                s.stale -= tokens
            if brings_token and not s.is_done:
                self._token(s, stale, now)

    def _token(self, s: VllmSequence, stale: bool, now: int) -> None:
        scheduler, state = self.scheduler, s.state
        scheduler.token_came()
        s.known += 1
        if scheduler.looks_ahead and not stale:
            s.placeholders -= 1
            if s.is_running:
                scheduler.key_step(s, min(s.computed - s.in_flight, s.known))
        self.given.token(now, state.last_token_ns)
        if state.last_token_ns is not None:
            if scheduler.milestones.tell_tokens is not None:
                scheduler.milestones.tell_tokens((state.request,))
        else:
            # A token of before a preemption may come while its request waits: its prefill ends with it.
            state.status = Status.PREFILLING
            scheduler.milestones.prefilled(state, now)
            scheduler.milestones.first_token(state, now)
        state.last_token_ns = now
        if s.known == s.total:
            self._finish(s, now)

    def _finish(self, s: VllmSequence, now: int) -> None:
        """Take a request whose last token is out from wherever it is; its blocks are free at once."""
        scheduler, state = self.scheduler, s.state
        s.is_done = True
        if s.is_running:
            s.is_running = False
            scheduler.store.release(state.lease, now)
            scheduler.running.remove(s)
        else:
            scheduler.waiting.remove(s)
        scheduler.milestones.finished(state, now)
        if scheduler.log is not None:
            cached, preemptions = state.cached_prefix_length_used, state.preemptions
            times = (state.first_token_ns, now)
            scheduler.log.requests.append((state.request, *times, cached, preemptions))

"""A step that computes prompts: the chunk that goes on, then who of the queue fits (``PrefillAdder``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from kvcache_sim.serving.sequence import Status
from kvcache_sim.serving.sglang.policy import QueueOrder
from kvcache_sim.serving.sglang.sequence import SglangSequence
from kvcache_sim.serving.sglang.state import Composition, SchedulerState, SglangStep
from kvcache_sim.tiers import PLACES

_NONE_BELOW = (0,) * (len(PLACES) - 1)


class Verdict(Enum):
    """Whether the next of the queue is looked at."""

    GO_ON = auto()
    NO_ROOM = auto()
    STOP = auto()


@dataclass(slots=True)
class Adder:
    """What is left of a step while its prompts are chosen."""

    #: Tokens of prompts that the step may still take up, and those of its chunk.
    input: int
    chunk: int
    #: Tokens that are spoken for: by this step and by what answers are expected to need; by this step alone.
    total_offset: float
    current_offset: int
    chosen: list[SglangSequence] = field(default_factory=list)
    new_chunked: SglangSequence | None = None

    def verdict(self, spare_tokens: int) -> Verdict:
        """Return whether the next of the queue is looked at, with so many spare tokens."""
        if spare_tokens - self.total_offset <= 0 or spare_tokens <= self.current_offset:
            return Verdict.NO_ROOM
        return Verdict.STOP if self.input <= 0 or self.chunk <= 0 else Verdict.GO_ON

    def reserve(self, tokens: int, answer: int, page: int) -> None:
        """Count a chunk, in whole pages, and what is expected of its answer."""
        paged = -(-tokens // page) * page
        self.total_offset += paged + page + answer
        self.current_offset += paged + page
        self.input -= paged
        self.chunk -= paged


class Prefill:
    """Composes steps of prompts."""

    def __init__(self, state: SchedulerState, order: QueueOrder) -> None:
        self._state, self._order = state, order

    def step(self, now: int) -> SglangStep | None:
        """Compose a step, the running requests' tokens too where chunks are mixed; None where none fits."""
        state = self._state
        state.is_full = state.is_full and bool(state.running)
        if (state.is_full or not state.waiting) and state.chunked is None:
            return None
        if self._allocatable(0) <= 0 and state.chunked is None:
            state.is_full = True
            return None
        self._order.sort(state.waiting)
        adder = self._adder()
        if state.chunked is not None and not self._go_on(adder, state.chunked):
            return None
        self._add_waiting(adder, now)
        if not adder.chosen:
            return None
        state.waiting = [s for s in state.waiting if not s.chunk]
        if adder.new_chunked is not None:
            state.chunked = adder.new_chunked
        if (s := state.chunked) is not None:
            s.middle_chunks += 1
        composed = self._take_chunks(adder.chosen, now)
        if state.settings.enable_mixed_chunk and state.running:
            self._mix(composed, now)
        return composed.step(True, state.chunked)

    def _allocatable(self, held: int) -> int:
        """Return how many more requests may get KV, beside those of this step that have some already."""
        state, most = self._state, self._state.settings.max_num_seqs
        return min(most - len(state.running), most - state.held + held)

    def _adder(self) -> Adder:
        state = self._state
        mixed = len(state.running) if state.settings.enable_mixed_chunk else 0
        expected = 0.0
        for s in state.running:  # one by one: the sum of the standard library rounds once
            expected += s.to_come * state.ratio.current
        most_input, most_chunk = state.settings.max_prefill_tokens, state.settings.max_num_batched_tokens
        return Adder(most_input - mixed, most_chunk - mixed, mixed + expected, mixed)

    def _go_on(self, adder: Adder, s: SglangSequence) -> bool:
        """Give the prompt that is being computed its next chunk; False where there is no room for it."""
        state, page = self._state, self._state.page
        most = min(adder.chunk, int(state.tree.spare_tokens - adder.total_offset))
        if most <= 0:
            most = adder.chunk
        s.filled = s.known
        lacking = s.filled - s.prefix
        tokens = min(lacking, max(most, 0))
        pages = -(-(s.prefix + tokens) // page) - -(-s.prefix // page)
        if not tokens or pages * page > state.tree.spare_tokens:
            s.end = s.prefix
            return False
        s.end, s.chunk = s.prefix + tokens, tokens
        adder.chosen.append(s)
        if tokens < lacking:
            adder.reserve(tokens, 0, page)
        else:
            adder.reserve(tokens, s.whole_answer, page)
            state.chunked = None
        return True

    def _add_waiting(self, adder: Adder, now: int) -> None:
        state, held = self._state, len(adder.chosen)
        for s in state.waiting:
            if adder.verdict(state.tree.spare_tokens) is Verdict.STOP:
                break
            if len(adder.chosen) >= self._allocatable(held):
                state.is_full = True
            if state.is_full:
                break
            s.filled = s.known
            s.found = state.tree.find(s.state.request, s.filled - 1)
            verdict = self._add_one(adder, s, now)
            if verdict is Verdict.NO_ROOM:
                state.is_full = bool(adder.chosen or state.running)
            if verdict is not Verdict.GO_ON:
                break

    def _add_one(self, adder: Adder, s: SglangSequence, now: int) -> Verdict:
        """Add the next of the queue with as much of its prompt as the chunk has room for."""
        state, page, request = self._state, self._state.page, s.state.request
        lacking = s.filled - s.found
        beside = state.tree.spare_tokens_beside(request, s.found)
        if lacking + s.to_come + page >= beside - adder.total_offset:
            return Verdict.NO_ROOM
        tokens, answer = lacking, s.whole_answer
        if -(-lacking // page) * page > adder.chunk:
            # A chunk ends with a page.
            tokens = (s.found + max(adder.chunk, 0) // page * page) // page * page - s.found
            if not tokens:
                return Verdict.STOP
            answer, adder.new_chunked = 0, s
        s.prefix, s.end, s.chunk = s.found, s.found + tokens, tokens
        state.tree.hold(request, s.found)
        adder.chosen.append(s)
        adder.reserve(tokens, answer, page)
        self._admitted(s, now)
        return adder.verdict(state.tree.spare_tokens)

    def _admitted(self, s: SglangSequence, now: int) -> None:
        milestones, hits, first = self._state.milestones, s.prefix // self._state.page, not s.was_admitted
        s.was_admitted = True
        milestones.admitted(s.state, hits, now)
        s.state.status = Status.PREFILLING
        if first:
            milestones.first_admitted(s.state, (hits, *_NONE_BELOW), self._state.page, s.prefix, now)
            milestones.prefill_starts(s.state, s.state.prompt_num_tokens - s.prefix, now)
        else:
            s.state.recomputed_tokens -= s.prefix
        if self._state.log is not None:
            self._state.log.admitted(s.state.request, s.prefix, first)

    def _take_chunks(self, chosen: list[SglangSequence], now: int) -> Composition:
        """Take room for the chunks of a step."""
        state, composed = self._state, Composition()
        slack = len(chosen) * state.page if state.page > 1 else 0
        state.tree.evict_until_free(sum(s.chunk for s in chosen) + slack, now)
        for s in chosen:
            state.tree.grow(s.state.request, s.end)
            state.held += not s.is_held
            s.is_held, s.is_retracted, s.committed = True, False, s.end
            composed.chunks.append((s.chunk, s.prefix))
            s.chunk = 0
            s.steps_in_flight += 1
            composed.members.append((s, False))
        return composed

    def _mix(self, composed: Composition, now: int) -> None:
        """Let the running requests decode in a step of prompts, where there is room for all of them."""
        state = self._state
        state.leave_finishing()
        if not state.running or not state.can_decode(state.running, now):
            return
        running, state.running = state.running, []
        state.take_decodes(composed, running, now)
        for s in running:
            s.end, s.filled = s.committed, s.known

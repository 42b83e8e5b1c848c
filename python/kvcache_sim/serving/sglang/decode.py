"""A step that brings the running requests a token each, and retraction where room runs out."""

from __future__ import annotations

from kvcache_sim.serving.sglang.new_token_ratio import RETRACT_DECODE_STEPS
from kvcache_sim.serving.sglang.sequence import SglangSequence
from kvcache_sim.serving.sglang.state import Composition, SchedulerState, SglangStep


def decode_step(state: SchedulerState, now: int) -> SglangStep | None:
    """Compose a decode step (``update_running_batch``); None where nobody decodes now."""
    before = len(state.running)
    finishing = state.leave_finishing()
    if not state.running:
        state.is_full = False
        return None
    if state.can_decode(state.running, now):
        state.ratio.decays()
    elif finishing:
        # What the step in flight ends will give room.
        return None
    else:
        _retract(state, now)
    state.is_full = state.is_full and len(state.running) == before
    if not state.running:
        return None
    composed = Composition()
    state.take_decodes(composed, state.running, now)
    return composed.step(False, None)


def _retract(state: SchedulerState, now: int) -> None:
    """Take KV away until the others can decode: of the shortest answers first, then the longest prompts."""
    kept = sorted(state.running, key=lambda s: (-s.out, s.state.prompt_num_tokens))
    while len(kept) > 1:
        _take_back(state, kept.pop(), len(kept), now)
        if state.can_decode(kept, now):
            break
    if len(kept) == 1 and not state.can_decode(kept, now):
        # It alone has no room, since a prompt holds the rest: it waits, where the engine gives it up.
        _take_back(state, kept.pop(), 0, now)
    if len(kept) < len(state.running):
        state.running = kept
    out, answers = sum(s.out for s in state.running), sum(s.max_new for s in state.running)
    state.ratio.retracted(len(state.running), out, answers)


def _take_back(state: SchedulerState, s: SglangSequence, others: int, now: int) -> None:
    """Send a running request to the end of the queue, its KV gone; so many others go on."""
    computed = s.state.prompt_num_tokens + max(s.out - 1, 0)
    state.tree.retract(s.state.request)
    s.is_held, s.is_retracted = False, True
    s.prefix = s.end = s.committed = s.middle_chunks = 0
    state.let_go()
    state.tree.evict_until_free(others * RETRACT_DECODE_STEPS, now)
    state.waiting.append(s)
    state.milestones.preempted(s.state, computed, now)
    if state.log is not None:
        state.log.counts.preempted()

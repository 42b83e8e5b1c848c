"""The context of a model applied to a trace: answers end there, or prompts lose their oldest history."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.rows import by_first_appearance
from kvcache_sim.workload.sessions import continues_prompt, previous_turns
from kvcache_sim.workload.trace import NO_REQUEST, NOT_GIVEN, Trace

#: Most tokens of a prompt and its answer: of all requests, or by request.
ContextTokens: TypeAlias = int | NDArray[np.int64]


def with_answers_in_context(trace: Trace, context: ContextTokens) -> Trace:
    """Return the trace with answers that end where prompt and answer reach ``context`` tokens.

    A prompt that leaves no token for an answer keeps its answer: engines reject it.
    """
    left = context - trace.input_tokens
    ends = (left > 0) & (trace.output_tokens > left)
    return replace(trace, output_tokens=np.where(ends, left, trace.output_tokens)) if ends.any() else trace


def slide(trace: Trace, max_model_len: ContextTokens) -> Trace:
    """Return the trace with the oldest history dropped from requests that are longer than the window.

    A request loses the tokens by which prompt and answer exceed ``max_model_len``, from the start of its
    prompt, if that part is history: tokens of earlier turns of its session. Otherwise it stays unchanged: its
    answer is cut, or the cluster rejects it. The hash of a block includes all earlier blocks, so every block
    of a shortened prompt is different. It is shared only with prompts that begin at the same token of the
    same text, as far as they agree. ``dropped_tokens`` is the number of tokens that each request lost,
    ``history_tokens`` the history that it kept. Simplified accounting, which has no blocks, counts the latter
    as cached. Cost: a dictionary lookup per block of a shortened prompt. Source: seed 000, 4.5.
    """
    excess = trace.input_tokens + trace.output_tokens - max_model_len
    history = _history(trace)
    dropped = np.where((excess > 0) & (excess <= history), excess, 0)
    if not dropped.any():
        return trace
    rows, counts = [], []
    known: dict[tuple[int, int, int], int] = {}
    fresh = trace.distinct_ids
    for row in range(len(trace)):
        ids = trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]].astype(np.int64)
        if lost := int(dropped[row]):
            keys = _keys(ids, int(trace.input_tokens[row]), lost, trace.block_size)
            ids = np.array([known.setdefault(key, fresh + len(known)) for key in keys], np.int64)
        rows.append(ids)
        counts.append(len(ids))
    known_history = (
        trace.history_tokens if len(trace.history_tokens) else np.full(len(trace), NOT_GIVEN, np.int64)
    )
    return replace(
        trace,
        input_tokens=trace.input_tokens - dropped,
        history_tokens=np.where(dropped > 0, history - dropped, known_history),
        block_ids=by_first_appearance(np.concatenate(rows)),
        id_offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        id_names=np.empty(0, np.int64),
        dropped_tokens=dropped + trace.dropped_tokens if len(trace.dropped_tokens) else dropped,
    )


def _history(trace: Trace) -> NDArray[np.int64]:
    """Return the leading tokens of each prompt that belong to earlier turns; at least one token is new."""
    previous = previous_turns(trace)
    before = trace.input_tokens[previous] + trace.output_tokens[previous]
    continues = (previous != NO_REQUEST) & continues_prompt(trace, previous)
    history = np.where(continues, before, 0)
    if len(trace.history_tokens):
        history = np.where(trace.history_tokens != NOT_GIVEN, trace.history_tokens, history)
    return np.minimum(history, trace.input_tokens - 1)


def _keys(ids: NDArray[np.int64], prompt_tokens: int, lost: int, size: int) -> list[tuple[int, int, int]]:
    """Return a unique name of each block of a prompt without its first ``lost`` tokens.

    The name is the start offset, the block's index, and the id of the old block with its last token, which
    covers all earlier tokens.
    """
    whole = len(ids) * size >= prompt_tokens  # the id of a partial last block counts too
    kept = prompt_tokens - lost
    blocks = -(-kept // size) if whole else kept // size
    ends = np.minimum(lost + (np.arange(blocks) + 1) * size, prompt_tokens)
    old = (ends - 1) // size
    return [(lost, k, int(ids[at])) for k, at in enumerate(old.tolist()) if at < len(ids)]

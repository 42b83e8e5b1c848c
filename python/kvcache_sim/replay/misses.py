"""Why tokens were missed: each under one cause, from the hits of a replay and of an unbounded cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.replay.miss_summary import miss_summary, requests_table
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from kvcache_sim.replay.request import ReplayRequest, ReplayResult


def explained(
    request: ReplayRequest,
    prompts: PromptBlocks,
    policy: str,
    hits: NDArray[np.uint32],
    missed: NDArray[np.int64] | None = None,
) -> ReplayResult:
    """Return the misses by cause and a row a request, where the replay asks for them.

    ``missed`` are the known blocks that were missed: request, whose demand had evicted them (-1: they never
    came in), blocks. Without it (a ceiling keeps no such record) a block as deep as the cache is large was
    never admitted, and the others have left it or were passed over.
    """
    if not request.explain:
        return {}
    if missed is None:
        admitted = np.full(len(prompts.trace), request.capacity_blocks)
        evicted = np.zeros((0, 3), np.int64)
    else:
        rows = missed.reshape(-1, 3)
        never, evicted = rows[rows[:, 1] < 0], rows[rows[:, 1] >= 0]
        admitted = prompts.known - np.bincount(never[:, 0], never[:, 2], len(prompts.trace)).astype(np.int64)
    tokens = missed_tokens(prompts, hits, admitted)
    found = prompts.hit_tokens(np.minimum(hits, prompts.limits))
    return {
        "misses": miss_summary(prompts.trace, policy, tokens, evicted),
        "requests": requests_table(prompts.trace, found, tokens),
    }


def missed_tokens(
    prompts: PromptBlocks, hits: NDArray[np.uint32], admitted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return missed tokens, a row a request, a column a cause of ``replay.miss_summary.MISS_CAUSES``.

    Of the leading blocks that an earlier prompt showed, the first ``admitted`` had come in and have left. A
    row sums to the prompt minus its hit.
    """
    limits, known = prompts.limits.astype(np.int64), prompts.known.astype(np.int64)
    found = np.minimum(hits, limits)
    tokens = prompts.hit_tokens
    admitted = np.clip(admitted, found, known)
    novel = tokens(limits) - tokens(known)
    parts_here = _others_went_on(prompts, known)
    return np.stack(
        [
            np.where(parts_here, 0, novel),
            np.where(parts_here, novel, 0),
            tokens(admitted) - tokens(found),
            prompts.trace.input_tokens - tokens(limits),
            tokens(known) - tokens(admitted),
        ],
        axis=1,
    )


def _others_went_on(prompts: PromptBlocks, known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether an earlier request went on, another way, after the last block that was known."""
    trace, per = prompts.trace, prompts.blocks_per_id
    lengths = np.diff(trace.id_offsets)
    request = np.repeat(np.arange(len(trace)), lengths)
    goes_on = np.ones(len(trace.block_ids), np.bool_)
    goes_on[trace.id_offsets[1:][lengths > 0] - 1] = False
    # a request goes on after an id only as far as its blocks reach
    position = np.arange(len(trace.block_ids)) - trace.id_offsets[request]
    goes_on &= (position + 1) * per < prompts.blocks[request]
    first = np.full(trace.distinct_ids, len(trace), np.int64)
    np.minimum.at(first, trace.block_ids[goes_on], request[goes_on])
    inside: NDArray[np.bool_] = (known > 0) & (known % per == 0)
    last = np.clip(trace.id_offsets[:-1] + known // per - 1, 0, max(0, len(trace.block_ids) - 1))
    if not len(trace.block_ids):
        return inside
    inside &= first[trace.block_ids[last]] < np.arange(len(trace))
    return inside

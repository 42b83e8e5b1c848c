"""Causes of misses in the replay of an eviction policy, from its hits and its record of evictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.replay.miss_tables import miss_summary, requests_table, with_partial_blocks
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from kvcache_sim.replay.request import ReplayRequest, ReplayResult


def explained(
    request: ReplayRequest,
    prompts: PromptBlocks,
    policy: str,
    hits: NDArray[np.uint32],
    missed: NDArray[np.int64] | None = None,
) -> ReplayResult:
    """Return the misses by cause and a row a request, if the replay requests them.

    ``missed`` are the known blocks that were missed: request, whose demand had evicted them (-1: they never
    came in), blocks. Without it (an upper bound keeps no such record) a block as deep as the cache is large
    was never admitted, and the others were evicted or passed over.
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
    """Return missed tokens, a row a request, a column a cause of ``replay.miss_causes.MISS_CAUSES``.

    Of the leading blocks that an earlier prompt showed, the first ``admitted`` had come in and have left. A
    row sums to the prompt minus its hit.
    """
    trace = prompts.trace
    tokens = _core.policy_miss_tokens(
        trace.id_offsets,
        trace.block_ids,
        prompts.blocks_per_id,
        prompts.block_size_tokens,
        trace.input_tokens,
        prompts.blocks,
        prompts.limits,
        prompts.known,
        admitted.astype(np.int64),
        hits,
    )
    return with_partial_blocks(tokens, trace)

"""Hit tokens of a trace in an unbounded cache, with its requests in sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.rows import flat_positions
from kvcache_sim.workload.sessions import continues_prompt, previous_turns
from kvcache_sim.workload.trace import Trace


def upper_bound_hit_tokens(trace: Trace, cache_output: bool = True) -> NDArray[np.int64]:
    """Return the prompt tokens of each request that earlier requests computed, in whole blocks.

    A prompt of n tokens can hit at most floor((n − 1)/block) blocks. With ``cache_output`` the whole blocks
    of an answer, its last token excepted, count too if the session's next prompt continues them:
    floor((prompt + output − 1)/block). Cost: a few passes over the ids. Source: semantics 1.
    """
    block = trace.block_size
    row = np.repeat(np.arange(len(trace)), np.diff(trace.id_offsets))
    at = np.arange(len(row)) - trace.id_offsets[row]
    full = trace.input_tokens // block
    seen_by = np.full(trace.distinct_ids, len(trace))
    whole = at < full[row]
    np.minimum.at(seen_by, trace.block_ids[whole], row[whole])
    if cache_output:
        answered_by, ids = _answers(trace)
        np.minimum.at(seen_by, ids, answered_by)
    known = (seen_by[trace.block_ids] < row) & whole
    return np.minimum(_leading_true(known, trace.id_offsets), (trace.input_tokens - 1) // block) * block


def _answers(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return (request, id) of every block that a request's answer completes and its next turn contains."""
    previous = previous_turns(trace)
    shown_by = np.flatnonzero(continues_prompt(trace, previous))
    by = previous[shown_by].astype(np.int64)
    first = trace.input_tokens[by] // trace.block_size
    end = (trace.input_tokens[by] + trace.output_tokens[by] - 1) // trace.block_size
    shown = trace.input_tokens[shown_by] // trace.block_size
    counts = np.maximum(np.minimum(end, shown) - first, 0)
    at = flat_positions(trace.id_offsets[shown_by] + first, counts)
    return np.repeat(by, counts), trace.block_ids[at]


def _leading_true(flags: NDArray[np.bool_], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of leading true flags of each ragged row."""
    false_at = np.concatenate((np.flatnonzero(~flags), [len(flags)]))
    first_false = false_at[np.searchsorted(false_at, offsets[:-1])]
    return np.minimum(first_false, offsets[1:]) - offsets[:-1]

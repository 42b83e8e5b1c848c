"""A trace in blocks of a multiple of its own: chunks of LMCache, pages of an engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.rows import first_appearance, flat_positions
from kvcache_sim.workload.trace import Trace


def in_coarser_blocks(trace: Trace, block_size: int) -> Trace:
    """Return the trace in blocks of ``block_size`` tokens, a larger multiple of its own; else as it is.

    An id names its block and all before it, so a coarser block has the name of its last id. The last block
    of a prompt may be partial where the ids cover the whole prompt.
    """
    per = block_size // trace.block_size
    if per < 2 or block_size % trace.block_size:
        return trace
    ids = np.diff(trace.id_offsets)
    covered = ids * trace.block_size >= trace.input_tokens
    counts = np.where(covered, -(-ids // per), ids // per)
    offsets = np.zeros(len(trace) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    within = flat_positions(np.zeros_like(counts), counts)
    first, end = (np.repeat(column, counts) for column in (trace.id_offsets[:-1], trace.id_offsets[1:]))
    last = np.minimum(first + (within + 1) * per, end) - 1
    block_ids, old = first_appearance(trace.block_ids[last], trace.distinct_ids)
    names = trace.id_names
    names = [names[k] for k in old.tolist()] if isinstance(names, list) else names[old] if len(names) else old
    return replace(
        trace,
        id_offsets=offsets,
        block_ids=block_ids,
        block_size=block_size,
        id_names=names,
        id_tokens=trace.id_tokens or trace.block_size,
        shown_tokens=_shown_tokens(trace),
    )


def _shown_tokens(trace: Trace) -> NDArray[np.int64]:
    """Return the leading tokens of each prompt whose ids an earlier request has."""
    owner = np.repeat(np.arange(len(trace)), np.diff(trace.id_offsets))
    first = np.full(trace.distinct_ids, len(trace), np.int64)
    np.minimum.at(first, trace.block_ids, owner)
    new = np.append(np.flatnonzero(first[trace.block_ids] == owner), len(owner))
    begins, ends = trace.id_offsets[:-1], trace.id_offsets[1:]
    shown = np.minimum(new[np.searchsorted(new, begins)], ends) - begins
    tokens: NDArray[np.int64] = np.minimum(shown * trace.block_size, trace.input_tokens)
    return tokens

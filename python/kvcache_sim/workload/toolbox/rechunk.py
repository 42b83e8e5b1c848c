"""A trace in smaller blocks, each old block being a run of new ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.rows import first_appearance, flat_positions
from kvcache_sim.workload.toolbox.invariant import require
from kvcache_sim.workload.trace import Trace


def rechunk(trace: Trace, block_size: int) -> Trace:
    """Return the trace with ids of ``block_size`` tokens, a divisor of its own block size.

    Id b becomes the ids (b, 0), (b, 1), …; a partial last block becomes as many as its tokens fill or begin.
    Ids are numbered anew. Invariant: nested: two prompts share exactly the tokens they shared before
    (fewer where the trace gives one id two sizes).
    """
    if block_size < 1 or trace.block_size % block_size:
        raise UsageError(
            "not a divisor of the trace's block size",
            where="BLOCK_SIZE",
            got=str(block_size),
            expected=f"a divisor of {trace.block_size}",
        )
    parts = trace.block_size // block_size
    counts = np.diff(trace.id_offsets)
    covered = np.minimum(counts * trace.block_size, trace.input_tokens)
    blocks = -(-covered // block_size)
    offsets = np.zeros(len(trace) + 1, np.int64)
    np.cumsum(blocks, out=offsets[1:])
    within = flat_positions(np.zeros(len(trace), np.int64), blocks)
    old = trace.block_ids[np.repeat(trace.id_offsets[:-1], blocks) + within // parts].astype(np.int64)
    nested = old * parts + within % parts
    if trace.distinct_ids * parts >= 1 << 32:
        raise UsageError("more than 2³² distinct blocks", where="BLOCK_SIZE", got=str(block_size))
    ids, names = first_appearance(nested.astype(np.uint32), trace.distinct_ids * parts)
    out = replace(
        trace, block_size=block_size, block_ids=ids, id_offsets=offsets, id_names=np.empty(0, np.int64)
    )
    _check(trace, out, names, parts)
    return out


def _check(trace: Trace, out: Trace, names: NDArray[np.int64], parts: int) -> None:
    """Check that the new ids still name their old block and their place in it."""
    said = names[out.block_ids]
    first = out.id_offsets[:-1]
    within = flat_positions(np.zeros(len(out), np.int64), np.diff(out.id_offsets))
    blocks = np.repeat(trace.id_offsets[:-1], np.diff(out.id_offsets)) + within // parts
    nested = np.array_equal(said // parts, trace.block_ids[blocks]) and np.array_equal(
        said % parts, within % parts
    )
    sizes = np.minimum(np.diff(trace.id_offsets) * trace.block_size, trace.input_tokens)
    whole = np.array_equal((out.id_offsets[1:] - first), -(-sizes // out.block_size))
    require(nested and whole, "rechunk", "new ids are nested in the old ones")

"""The columns of a trace that determine block keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import Trace

#: In the column of next turns: no turn continues this request. The core's value for no request.
NO_NEXT_TURN = 0xFFFF_FFFF

#: Id offsets, ids, blocks per id, full blocks of each prompt, and the turn that continues each request.
KeyArrays = tuple[NDArray[np.int64], NDArray[np.uint32], int, NDArray[np.uint32], NDArray[np.uint32]]


def key_arrays(trace: Trace, block: int) -> KeyArrays:
    """Return the columns that determine block keys; ``block`` in tokens.

    Raises UsageError if ``block`` does not divide the trace's block size.
    """
    if trace.block_size % block:
        raise UsageError(
            "not a divisor of the trace's block size",
            "cache.block_size",
            str(block),
            f"a divisor of {trace.block_size}",
        )
    per = trace.block_size // block
    covered = np.diff(trace.id_offsets) * per
    named = trace.input_tokens
    if len(trace.named_tokens):
        named = np.maximum(named, trace.named_tokens)
    full = np.minimum(named // block, covered).astype(np.uint32)
    return trace.id_offsets, trace.block_ids, per, full, next_turns(trace)


def next_turns(trace: Trace) -> NDArray[np.uint32]:
    """Return by request the turn that continues it, ``NO_NEXT_TURN`` without one."""
    following = continuations(trace)
    return np.where(following < 0, NO_NEXT_TURN, following).astype(np.uint32)

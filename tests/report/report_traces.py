"""Traces whose reports are looked at."""

import numpy as np
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace


def make_trace(rows, block_size=512):
    """Return a trace of (arrival ns, input tokens, ids) rows."""
    offsets = np.cumsum([0, *(len(ids) for _, _, ids in rows)])
    count = len(rows)
    return Trace(
        arrival_ns=np.array([arrival for arrival, _, _ in rows]),
        input_tokens=np.array([tokens for _, tokens, _ in rows]),
        output_tokens=np.ones(count, np.int64),
        id_offsets=offsets,
        block_ids=np.array([i for _, _, ids in rows for i in ids], np.uint32),
        block_size=block_size,
        session=np.full(count, NO_SESSION, np.int32),
        turn=np.zeros(count, np.int32),
        think_ns=np.full(count, OPEN_LOOP),
        is_conversational_turn=np.zeros(count, bool),
    )

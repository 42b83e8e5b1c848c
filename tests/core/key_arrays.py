"""The keys of a few requests, as stores take them."""

import numpy as np
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN

#: Requests 0 and 1 share their first two blocks of four; the answer of 0 is the prompt of 2.
ROWS = ([0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 2, 3, 6, 7])


def arrays():
    """Return the arguments of keys."""
    ids = np.array([i for row in ROWS for i in row], np.uint32)
    offsets = np.cumsum([0] + [len(row) for row in ROWS]).astype(np.int64)
    full = np.array([len(row) for row in ROWS], np.uint32)
    return offsets, ids, 1, full, np.array([2, NO_NEXT_TURN, NO_NEXT_TURN], np.uint32)

"""Iterations that are no steps: compilation and tuning at first use, where a file marks none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.calibration.rows import IterationRows

#: An iteration compiles when it takes this many times what is usual for its like, and so many ms more.
COMPILES_TIMES = 3.0
COMPILES_EXTRA_MS = 200.0
#: What is usual: the median of so many iterations, itself and those nearest by tokens.
_LIKE_ROWS = 31


def usual_ms(rows: IterationRows) -> NDArray[np.float64]:
    """Return for each row the median time of the 31 iterations of the file most like it.

    Alike are iterations that both have a prefill chunk or both have none; the nearest are those next to it
    when sorted by tokens, then by KV read by decodes, then by KV read by chunks.
    """
    usual = np.empty(len(rows))
    chunked = rows.prefill_tokens > 0
    for mask in (chunked, ~chunked):
        own = np.flatnonzero(mask)
        tokens = (rows.prefill_tokens + rows.decode_sequences)[own]
        own = own[np.lexsort((rows.past_tokens[own], rows.decode_kv_tokens[own], tokens))]
        width = min(_LIKE_ROWS, len(own))
        if width:
            windows = np.lib.stride_tricks.sliding_window_view(rows.iter_ms[own], width)
            first = np.clip(np.arange(len(own)) - width // 2, 0, len(windows) - 1)
            usual[own] = np.median(windows, axis=1)[first]
    return usual


def compiles(rows: IterationRows) -> NDArray[np.bool_]:
    """Return the mask of compilation: more than three times what is usual, and 200 ms above it.

    The longest real step of the shipped files takes 0.2 s; a first use takes 0.2 to 5 s. A rank that waits
    for another one's prefill stays: it takes long, but not as long.
    """
    usual = usual_ms(rows)
    longest = np.maximum(COMPILES_TIMES * usual, usual + COMPILES_EXTRA_MS)
    return np.asarray(rows.iter_ms > longest, np.bool_)


def waits(rows: IterationRows) -> NDArray[np.bool_]:
    """Return the mask of pure decode steps of more than three times what is usual that do not compile.

    Their time is not their own: a rank of a data-parallel group waits for the prefill of another, or, on one
    GPU with asynchronous scheduling, the launch of the next step is charged to this one.
    """
    long = np.asarray(rows.iter_ms > COMPILES_TIMES * usual_ms(rows), np.bool_)
    return np.asarray((rows.prefill_tokens == 0) & long & ~compiles(rows), np.bool_)

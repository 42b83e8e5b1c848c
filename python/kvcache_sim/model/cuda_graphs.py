"""CUDA-graph padding: a small step runs as the next captured batch size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def capture_sizes(largest: int) -> NDArray[np.int64]:
    """Return vLLM v1's captured sizes up to ``largest``: 1, 2, 4, 8, 16, 24, … by 8, from 256 by 16."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return np.array([size for size in sizes if size <= largest], np.int64)


def padded_tokens(largest: int, max_tokens: int) -> NDArray[np.int64]:
    """Return, for 0 … ``max_tokens`` tokens, the tokens the step really runs: the next captured size.

    Counts past the largest captured size run as they are (vLLM v1 pads every step whose tokens fit a graph,
    mixed ones too). 0 stays 0.
    """
    tokens = np.arange(max_tokens + 1, dtype=np.int64)
    sizes = np.concatenate((np.zeros(1, np.int64), capture_sizes(largest)))
    within = tokens <= sizes[-1]
    tokens[within] = sizes[np.searchsorted(sizes, tokens[within])]
    return tokens

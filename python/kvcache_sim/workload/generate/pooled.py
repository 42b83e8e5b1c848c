"""Prompts made of a text from a small pool and a text of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.generate.chains import ROOT, Chains

UNSHARED = -1


def prefixed(
    pool: Chains,
    pool_tokens: NDArray[np.int64],
    pick: NDArray[np.int64],
    own_tokens: NDArray[np.int64],
    unshared_tokens: NDArray[np.int64],
    block_size: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Chains]:
    """Return (prompt lengths, chain of each, chains): pool text ``pick`` followed by an own text each.

    Where ``pick`` is UNSHARED the prompt is as long as with the pool text ``unshared_tokens`` names, but
    nothing of it is shared.
    """
    shares = pick != UNSHARED
    length = pool_tokens[np.where(shares, pick, unshared_tokens)]
    parent = np.where(shares, pick, ROOT)
    fork = np.where(shares, length // block_size, 0)
    chain = len(pool) + np.arange(len(pick))
    return length + own_tokens, chain, pool.grown(parent, fork)

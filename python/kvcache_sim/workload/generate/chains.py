"""Texts as chained blocks: a forest in which two texts share ids exactly for their common full blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Value

ROOT = -1
#: Base of a text whose own blocks get new ids.
FRESH = np.iinfo(np.int64).min


class Chains(Value):
    """Texts, each an extension of a parent's text; a prompt is a prefix of one of them.

    Text c has its parent's blocks before block ``fork[c]`` and its own from there on: own block k has the
    id ``base[c] + k``. ``parent[c]`` is an earlier index, or ROOT with a fork of 0.
    """

    parent: NDArray[np.int64]
    fork: NDArray[np.int64]
    base: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.parent)

    def grown(
        self, parent: NDArray[np.int64], fork: NDArray[np.int64], base: NDArray[np.int64] | None = None
    ) -> Chains:
        """Return the forest with additional texts; without a ``base`` their blocks get new ids."""
        if base is None:
            base = np.full(len(parent), FRESH)
        return Chains(
            np.concatenate((self.parent, parent)),
            np.concatenate((self.fork, fork)),
            np.concatenate((self.base, base)),
        )


def shared_texts(tokens: NDArray[np.int64], block_size: int) -> tuple[Chains, int]:
    """Return the texts that all chunks of a workload share, with ids from 0, and the next free id."""
    ends = np.cumsum(tokens // block_size)
    none = np.zeros(len(tokens), np.int64)
    bases = np.concatenate((none[:1], ends[:-1]))
    return Chains(none + ROOT, none, bases), int(ends[-1]) if len(ends) else 0


def expand(
    chains: Chains, chain: NDArray[np.int64], input_tokens: NDArray[np.int64], block_size: int, fresh: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return (number of ids per prompt, all ids, next free id).

    Prompt i is the first ``input_tokens[i]`` tokens of text ``chain[i]``.
    Ids from ``fresh`` on are assigned to the new texts, then one to each partial last block, which is never
    shared. Cost: a few passes over the ids, and one for each level of the forest.
    """
    full = input_tokens // block_size
    chains, fresh = _allot(chains, chain, full, fresh)
    has_partial = input_tokens % block_size > 0
    counts = full + has_partial
    offsets = np.concatenate(([0], np.cumsum(counts)))
    block = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    owner = np.repeat(chain, counts)
    climbing = np.flatnonzero(block < chains.fork[owner])
    while len(climbing):
        up = chains.parent[owner[climbing]]
        owner[climbing] = up
        climbing = climbing[block[climbing] < chains.fork[up]]
    ids = chains.base[owner] + block
    partials = int(has_partial.sum())
    ids[offsets[1:][has_partial] - 1] = np.arange(fresh, fresh + partials)
    return counts, ids, fresh + partials


def _allot(
    chains: Chains, chain: NDArray[np.int64], full: NDArray[np.int64], fresh: int
) -> tuple[Chains, int]:
    """Return the forest with consecutive ids assigned to its new texts, and the next free id."""
    ends = chains.fork.copy()
    np.maximum.at(ends, chain, full)
    children = np.flatnonzero(chains.parent != ROOT)
    np.maximum.at(ends, chains.parent[children], chains.fork[children])
    is_fresh = chains.base == FRESH
    fresh_units = np.where(is_fresh, ends - chains.fork, 0)
    starts = fresh + np.cumsum(fresh_units) - fresh_units
    base = np.where(is_fresh, starts - chains.fork, chains.base)
    return Chains(chains.parent, chains.fork, base), fresh + int(fresh_units.sum())

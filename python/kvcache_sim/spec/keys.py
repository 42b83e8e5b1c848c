"""The names of blocks (semantics 1).

A block's key identifies its tokens and all before them, so equal keys are equal prefixes: seed 000's
PrefixHash. Block b of a request has the id of its prompt at that position; after the prompt's end, the id of
the session's next turn there, if its prompt covers the answer. Every other block has a key of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, count, islice

import numpy as np

from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, KeyArrays

_PRIVATE = 1 << 63


class Keys:
    """The block keys of all requests of a trace."""

    def __init__(self, arrays: KeyArrays) -> None:
        self.arrays = arrays
        #: Keys of a request that others can have, cached for the last requests.
        self._shared = lru_cache(256)(self._shared_keys)

    def path(self, request: int, start: int, end: int) -> Iterator[int]:
        """Yield the keys of a request's blocks from ``start`` to before ``end``."""
        shared = self._shared(request)
        private = (_PRIVATE | request << 32 | block for block in count(len(shared)))
        return islice(chain(shared, private), start, end)

    def _shared_keys(self, request: int) -> list[int]:
        keys = self._prompt_keys(request)
        following = int(self.arrays[-1][request])
        return keys if following == NO_NEXT_TURN else keys + self._prompt_keys(following)[len(keys) :]

    def _prompt_keys(self, request: int) -> list[int]:
        offsets, ids, per_id, full_blocks, _ = self.arrays
        blocks, first = int(full_blocks[request]), int(offsets[request])
        shown = ids[first : first - (-blocks // per_id)].astype(np.int64)
        keys: list[int] = (shown[:, None] * per_id + np.arange(per_id)).ravel()[:blocks].tolist()
        return keys

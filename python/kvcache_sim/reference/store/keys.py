"""The names of blocks, one at a time: the reference of the native keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.key_arrays import NO_NEXT_TURN

_PRIVATE = 1 << 63


class ReferenceKeys:
    """Block keys, one at a time: the prompt's ids, then the next turn's, then private ones."""

    def __init__(
        self,
        id_offsets: NDArray[np.int64],
        block_ids: NDArray[np.uint32],
        blocks_per_id: int,
        full_blocks: NDArray[np.uint32],
        continuation: NDArray[np.uint32],
    ) -> None:
        self.offsets, self.ids = id_offsets.tolist(), block_ids.tolist()
        self.per, self.full, self.next = blocks_per_id, full_blocks.tolist(), continuation.tolist()

    def key(self, request: int, block: int) -> int:
        """Return a block's key; private ones have bit 63 set."""
        for source in (request, self.next[request]):
            if source != NO_NEXT_TURN and block < self.full[source]:
                return int(self.ids[self.offsets[source] + block // self.per] * self.per + block % self.per)
        return _PRIVATE | request << 32 | block

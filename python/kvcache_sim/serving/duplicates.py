"""Two requests about to compute the same block: the later one may wait for the earlier one's."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.workload.trace import Trace, view


class Duplicates:
    """Tells whether the first block a request lacks is being computed by others on its machine.

    Ids are chained, so two prompts have a block in common when its id stands at the same place in both. The
    last partial id of a prompt is its own.
    """

    def __init__(self, trace: Trace, block_size_tokens: int) -> None:
        self._ids = view(trace.block_ids)
        self._offsets = view(trace.id_offsets)
        self._block_tokens, self._tokens_per_id = block_size_tokens, trace.block_size

    def computed_by_any(self, s: SequenceState, found_blocks: int, others: Iterable[SequenceState]) -> bool:
        """Return whether one of ``others`` will compute the block after the ``found_blocks`` of ``s``.

        ``others`` are requests that run or load; none of their computed blocks is missing from the cache, so
        whoever has this one in its prompt is still to compute it. Cost: two look-ups each.
        """
        place = found_blocks * self._block_tokens // self._tokens_per_id  # a block may be larger than an id
        wanted = self._id(s.request, place)
        return wanted is not None and any(self._id(other.request, place) == wanted for other in others)

    def _id(self, request: int, place: int) -> int | None:
        at = self._offsets[request] + place
        return self._ids[at] if at < self._offsets[request + 1] else None

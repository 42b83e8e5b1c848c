"""Since when, or from when on, each copy is ready: kept beside a store, which knows only whether."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.transfer import HOP, Transfer

#: When a copy's first layer and its last are ready, in ns; None while that is not known.
Times = tuple[int | None, int | None]


class ReadyTimes:
    """The last known times of every copy on one machine, by block key and tier.

    It notes what the mover sends from now on; what a step computes is told to it. Memory: an entry for every
    block and tier that ever was.
    """

    def __init__(self, mover: Mover) -> None:
        self._store = marking(mover)
        self._times: dict[tuple[int, int], Times] = {}
        mover.when_sent(self._sent)

    def note(self, keys: Iterable[int], tier: int, times: Times) -> None:
        """Keep the times of copies on a tier."""
        for key in keys:
            self._times[key, tier] = times

    def get(self, key: int, tier: int) -> Times | None:
        """Return the times of a copy, None where nobody told."""
        return self._times.get((key, tier))

    def _sent(self, transfer: Transfer) -> None:
        if transfer.move != HOP:
            times = (transfer.first_layer_ready_at_ns, transfer.ready_at_ns)
            self.note(self._store.moved_keys(transfer.move), transfer.to_tier, times)

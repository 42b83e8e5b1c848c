"""Active blocks: what a request holds on the GPU while it is computed, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.cache.operations.transfer import NativeTransfer, latest


@dataclass(slots=True)
class Active:
    """Blocks held for one request: reused ones that are ready or being loaded, and active ones to compute.

    ``reused_blocks`` by the tier they came from. ``active_blocks`` have room and no content. Its times are
    None while the end of one of the transmissions is not known.
    """

    request: int
    #: The store's number of the hold.
    lease: int
    reused_blocks: dict[str, int]
    active_blocks: int
    asked_at_ns: int
    #: Transmissions that bring reused blocks, and those that free the room of the active ones.
    loads: tuple[NativeTransfer, ...]
    written: tuple[NativeTransfer, ...]

    @property
    def room_at_ns(self) -> int | None:
        """When all its room is free."""
        return latest((transfer.ready_at_ns for transfer in self.written), self.asked_at_ns)

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """When the first layer of all reused blocks is there: computing may start, layer by layer."""
        return latest((transfer.first_layer_ready_at_ns for transfer in self.loads), self.asked_at_ns)

    @property
    def ready_at_ns(self) -> int | None:
        """When all reused blocks are there."""
        return latest((transfer.ready_at_ns for transfer in self.loads), self.asked_at_ns)


@dataclass(frozen=True, slots=True)
class Switched:
    """Active blocks that were switched into the cache: new ones, and duplicates whose room was freed.

    Of a duplicate the request now holds the copy that was there first. ``written``: what the write policy of
    the edge below sent at once.
    """

    cached_blocks: int
    duplicate_blocks: int
    written: NativeTransfer | None

"""Room acquired on a tier, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.cache.operations.transfer import NativeTransfer, latest


@dataclass(frozen=True, slots=True)
class Space:
    """Room for some blocks on a tier: what was evicted for it, and when it is free.

    ``written`` are the transmissions to the tier below that must end first: those of victims that were not
    there yet, and those that were on their way already. A victim with a ready copy below costs nothing.
    """

    tier: str
    blocks: int
    #: The store's number of the room.
    move: int
    acquired_at_ns: int
    written: tuple[NativeTransfer, ...]
    #: Blocks that left each tier for it, by tier.
    evicted_blocks: dict[str, int]

    @property
    def ready_at_ns(self) -> int | None:
        """When the room is free; None while that of a write that must end is not known."""
        return latest((transfer.ready_at_ns for transfer in self.written), self.acquired_at_ns)

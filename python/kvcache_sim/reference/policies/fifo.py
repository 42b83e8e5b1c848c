"""First in, first out: the block inserted first, whatever its use (Belady 1966)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class Fifo(Ranked):
    """Smallest insertion first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the insertion."""
        return (block.created,)


def make(variant: Variant, capacity: int) -> Fifo:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Fifo()

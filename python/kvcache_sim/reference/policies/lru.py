"""Least recently used: the block whose last use is longest ago (Mattson et al. 1970)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class Lru(Ranked):
    """Smallest last access first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the last access."""
        return (block.last_access,)


def make(variant: Variant, capacity: int) -> Lru:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Lru()

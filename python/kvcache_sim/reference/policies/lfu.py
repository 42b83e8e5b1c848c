"""Least frequently used, counts kept only while cached; ties by recency (Robinson and Devarakonda 1990)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class Lfu(Ranked):
    """Fewest uses first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return uses, then the last access."""
        return (block.hits, block.last_access)


def make(variant: Variant, capacity: int) -> Lfu:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Lfu()

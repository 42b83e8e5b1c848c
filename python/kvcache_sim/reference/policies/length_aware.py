"""Length-aware: like least frequently used, but blocks later in their prompt go first (Mooncake 2025)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class LengthAware(Ranked):
    """Fewest uses first, then the deepest, then the least recent."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return uses, minus the depth, the last access."""
        return (block.hits, -block.depth, block.last_access)


def make(variant: Variant, capacity: int) -> LengthAware:
    """Return the policy of a tier of ``capacity`` blocks."""
    return LengthAware()

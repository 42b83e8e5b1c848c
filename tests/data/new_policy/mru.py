"""Most recently used: the leaf whose last use is shortest ago (Chou and DeWitt 1985)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class Mru(Ranked):
    """Largest last access first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return minus the last access."""
        return (-block.last_access,)


def make(variant: Variant, capacity: int) -> Mru:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Mru()

"""Time to live: a block unused for the time is gone; the next to expire goes first (Jung et al. 2003)."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class Ttl(Ranked):
    """One time to live for all, so the order of expiry is the order of use."""

    def __init__(self, ttl_ns: int) -> None:
        super().__init__()
        self.ttl_ns = ttl_ns

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the last access."""
        return (block.last_access,)

    def lapsed(self, block: Block, now_ns: int) -> bool:
        """Return whether a block was not used for the time to live."""
        return block.last_access_ns + self.ttl_ns <= now_ns

    def expire(self, now_ns: int) -> list[Block]:
        """Forget what was not used for the time to live."""
        gone = [b for b in self.by_key.values() if self.lapsed(b, now_ns)]
        return [self.forget(b) for b in sorted(gone, key=lambda b: -b.depth)]


def make(variant: Variant, capacity: int) -> Ttl:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Ttl(variant.ttl_ns)

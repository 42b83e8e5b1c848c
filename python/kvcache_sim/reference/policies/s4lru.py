"""S4LRU: four segments of recency, of which each use climbs one (Huang et al., SOSP 2013)."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo
from kvcache_sim.reference.policies.segments import Segments


class S4Lru:
    """Quarters of the room, rounded down; an empty cache fills from below (libCacheSim)."""

    def __init__(self, capacity: int) -> None:
        self.segments = Segments([capacity // 4] * 4)

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn."""

    def on_hit(self, block: Block) -> None:
        """Climb."""
        self.segments.lift(block)

    def insert(self, block: Block) -> None:
        """Join the lowest segment with room."""
        self.segments.insert(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the least recent of the lowest segment."""
        victim = self.segments.victim(may_go)
        if victim is not None:
            self.segments.remove(victim)
        return victim

    def give_up(self, may_go: MayGo) -> Block | None:
        """Let go what a fall made one too many."""
        return self.segments.spill(may_go)

    def remove(self, block: Block) -> None:
        """Leave its segment."""
        self.segments.remove(block)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> S4Lru:
    """Return the policy of a tier of ``capacity`` blocks."""
    return S4Lru(capacity)

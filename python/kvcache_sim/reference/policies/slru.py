"""Segmented LRU: what is used again is protected; what falls out gets another round (Karedla et al. 1994)."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class Slru:
    """Four fifths of the room may be protected. Lists are oldest first."""

    def __init__(self, capacity: int) -> None:
        self.probation: list[Block] = []
        self.protected: list[Block] = []
        self.protected_blocks = capacity * 4 // 5

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn."""

    def on_hit(self, block: Block) -> None:
        """Protect the block; the least recent protected one may fall out."""
        (self.protected if block in self.protected else self.probation).remove(block)
        self.protected.append(block)
        if len(self.protected) > self.protected_blocks:
            self.probation.append(self.protected.pop(0))

    def insert(self, block: Block) -> None:
        """Join on probation."""
        self.probation.append(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the least recent on probation, else of the protected."""
        for blocks in (self.probation, self.protected):
            for block in blocks:
                if may_go(block):
                    blocks.remove(block)
                    return block
        return None

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        for blocks in (self.probation, self.protected):
            if block in blocks:
                blocks.remove(block)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> Slru:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Slru(capacity)

"""2Q: newcomers queue, what returns after it left is kept by recency (Johnson and Shasha, VLDB 1994)."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class TwoQ:
    """A quarter of the room for newcomers, names of half of it (libCacheSim's shares); lists oldest first."""

    def __init__(self, capacity: int) -> None:
        self.newcomers: list[Block] = []
        self.main: list[Block] = []
        self.names: list[Hashable] = []
        self.newcomer_blocks = capacity // 4
        self.most_names = capacity // 2
        self.returned = False

    def on_miss(self, key: Hashable) -> None:
        """Whether the name is known decides where the block goes."""
        self.returned = key in self.names
        if self.returned:
            self.names.remove(key)

    def on_hit(self, block: Block) -> None:
        """Among the newcomers nothing moves."""
        if block in self.main:
            self.main.remove(block)
            self.main.append(block)

    def insert(self, block: Block) -> None:
        """Join the main list, or the newcomers."""
        (self.main if self.returned else self.newcomers).append(block)
        self.returned = False

    def evict(self, may_go: MayGo) -> Block | None:
        """Take a newcomer where there are too many, else from the main list; else from the other."""
        lists = [self.newcomers, self.main]
        for blocks in lists if len(self.newcomers) > self.newcomer_blocks else lists[::-1]:
            victim = next(filter(may_go, blocks), None)
            if victim is not None:
                blocks.remove(victim)
                if blocks is self.newcomers:
                    self.names = [*self.names, victim.key][-self.most_names :] if self.most_names else []
                return victim
        return None

    def remove(self, block: Block) -> None:
        """Leave its list."""
        for blocks in (self.newcomers, self.main):
            if block in blocks:
                blocks.remove(block)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> TwoQ:
    """Return the policy of a tier of ``capacity`` blocks."""
    return TwoQ(capacity)

"""Adaptive replacement: recency and frequency share room, ghosts move the border (Megiddo and Modha 2003)."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class Arc:
    """The paper's lists, least recent first. Where a list's victim may not go, the next that may is taken."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.t1: list[Block] = []
        self.t2: list[Block] = []
        self.b1: list[Hashable] = []
        self.b2: list[Hashable] = []
        self.target = 0.0
        self.ghost = ""

    def on_hit(self, block: Block) -> None:
        """Case I: the block has been used again."""
        (self.t1 if block in self.t1 else self.t2).remove(block)
        self.t2.append(block)

    def on_miss(self, key: Hashable) -> None:
        """Cases II, III and IV: the ghosts answer, and the directory stays within its bounds."""
        if key in self.b1:
            self.target = min(self.target + max(len(self.b2) / len(self.b1), 1.0), self.capacity)
            self.b1.remove(key)
            self.ghost = "b1"
        elif key in self.b2:
            self.target = max(self.target - max(len(self.b1) / len(self.b2), 1.0), 0.0)
            self.b2.remove(key)
            self.ghost = "b2"
        else:
            self.ghost = ""
            if len(self.t1) + len(self.b1) >= self.capacity:
                del self.b1[:1]
            elif len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2) >= 2 * self.capacity:
                del self.b2[:1]

    def insert(self, block: Block) -> None:
        """Join the list of what came once, or of what came again."""
        (self.t2 if self.ghost else self.t1).append(block)
        self.ghost = ""

    def evict(self, may_go: MayGo) -> Block | None:
        """REPLACE; where the first list alone fills the room, its victim leaves no ghost."""
        if not self.ghost and len(self.t1) >= self.capacity:
            return self.take(self.t1, may_go)
        over = len(self.t1) > self.target or (len(self.t1) == self.target and self.ghost == "b2")
        pairs = [(self.t1, self.b1), (self.t2, self.b2)]
        for blocks, ghosts in pairs if self.t1 and over else pairs[::-1]:
            victim = self.take(blocks, may_go)
            if victim is not None:
                ghosts.append(victim.key)
                return victim
        return None

    def take(self, blocks: list[Block], may_go: MayGo) -> Block | None:
        """Remove the least recent block of a list that may go."""
        for block in blocks:
            if may_go(block):
                blocks.remove(block)
                return block
        return None

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        for blocks in (self.t1, self.t2):
            if block in blocks:
                blocks.remove(block)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> Arc:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Arc(capacity)

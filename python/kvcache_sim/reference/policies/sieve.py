"""SIEVE: one queue, a visited bit, a hand that moves from old to new and stays there (Zhang, 2024)."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class Sieve:
    """A block that may not go is passed over like a visited one: its bit is cleared."""

    def __init__(self) -> None:
        #: Oldest first, so the hand moves upwards.
        self.queue: list[Block] = []
        self.visited: set[Hashable] = set()
        self.hand = 0

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn."""

    def on_hit(self, block: Block) -> None:
        """Set the bit."""
        self.visited.add(block.key)

    def insert(self, block: Block) -> None:
        """Join as the newest."""
        if self.hand >= len(self.queue):
            self.hand = 0
        self.queue.append(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Move the hand to the first unvisited block that may go."""
        for _ in range(3 * len(self.queue)):
            at = self.hand if self.hand < len(self.queue) else 0
            block = self.queue[at]
            if block.key not in self.visited and may_go(block):
                self.hand = at
                return self.queue.pop(at)
            self.visited.discard(block.key)
            self.hand = at + 1
        return None

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        if block in self.queue:
            at = self.queue.index(block)
            del self.queue[at]
            self.hand -= at < self.hand
            self.visited.discard(block.key)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> Sieve:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Sieve()

"""CLOCK: first in, first out, with a second chance for what was used (Corbató 1968)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class Clock:
    """A block that may not go is passed over like a used one: back to the newest end, its bit cleared."""

    def __init__(self) -> None:
        self.queue: deque[Block] = deque()
        self.used: set[Hashable] = set()

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn."""

    def on_hit(self, block: Block) -> None:
        """Set the bit."""
        self.used.add(block.key)

    def insert(self, block: Block) -> None:
        """Join as the newest."""
        self.queue.append(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the oldest unused block that may go."""
        for _ in range(3 * len(self.queue)):
            block = self.queue.popleft()
            if block.key not in self.used and may_go(block):
                return block
            self.used.discard(block.key)
            self.queue.append(block)
        return None

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        if block in self.queue:
            self.queue.remove(block)
            self.used.discard(block.key)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> Clock:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Clock()

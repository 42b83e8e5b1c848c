"""Policies that are a key of a block: the smallest key goes first, of equals the deepest block."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.reference.policies.block import Block, MayGo


class Ranked:
    """Scans every block at every eviction; a policy defines ``key`` and what it learns from a victim."""

    def __init__(self) -> None:
        self.blocks: dict[Hashable, tuple[float, ...]] = {}
        self.by_key: dict[Hashable, Block] = {}

    def key(self, block: Block) -> tuple[float, ...]:
        """Return what the blocks are ordered by; asked after each insertion and hit."""
        raise NotImplementedError

    def learn(self, key: tuple[float, ...]) -> None:
        """Take notice of the key of a block evicted to make room."""

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn."""

    def on_hit(self, block: Block) -> None:
        """Order the block anew."""
        self.blocks[block.key] = self.key(block)

    def insert(self, block: Block) -> None:
        """Order a new block."""
        self.by_key[block.key] = block
        self.blocks[block.key] = self.key(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Remove the smallest."""
        free = [b for b in self.by_key.values() if may_go(b)]
        if not free:
            return None
        victim = min(free, key=lambda b: (self.blocks[b.key], -b.depth))
        self.learn(self.blocks[victim.key])
        return self.forget(victim)

    def forget(self, block: Block) -> Block:
        """Remove a block."""
        del self.blocks[block.key]
        return self.by_key.pop(block.key)

    def remove(self, block: Block) -> None:
        """Forget a block, if it is here."""
        if block.key in self.by_key:
            self.forget(block)

    def lapsed(self, block: Block, now_ns: int) -> bool:
        """Return whether a block's time has run out."""
        return False

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []

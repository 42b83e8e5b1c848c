"""S3-FIFO: a small queue sifts, a main queue gives second chances, ghosts return (Yang et al. 2023)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class S3Fifo:
    """A tenth of the room is small, ghosts for nine tenths, two uses move a block to the main queue.

    Until the first eviction a full small queue passes new blocks to the main one (libCacheSim's rule; the
    paper leaves the warm-up open). A block that may not go is passed over, to the newest end of its queue.
    """

    def __init__(self, capacity: int) -> None:
        self.small: deque[Block] = deque()
        self.main: deque[Block] = deque()
        self.ghosts: deque[Hashable] = deque()
        self.uses: dict[Hashable, int] = {}
        self.small_blocks = capacity // 10
        self.main_blocks = capacity - capacity // 10
        self.ghost_blocks = capacity * 9 // 10
        self.was_ghost = False
        self.has_evicted = False

    def on_hit(self, block: Block) -> None:
        """Count a use."""
        self.uses[block.key] += 1

    def on_miss(self, key: Hashable) -> None:
        """A ghost goes to the main queue."""
        self.was_ghost = key in self.ghosts
        if self.was_ghost:
            self.ghosts.remove(key)

    def insert(self, block: Block) -> None:
        """Join the small queue, or the main one."""
        warm_up = not self.has_evicted and len(self.small) >= self.small_blocks
        (self.main if self.was_ghost or warm_up else self.small).append(block)
        self.uses[block.key] = 0

    def evict(self, may_go: MayGo) -> Block | None:
        """Take from the main queue when it is too long, else from the small one."""
        self.has_evicted = True
        if len(self.main) > self.main_blocks or not self.small:
            return self.from_main(may_go) or self.from_small(may_go)
        return self.from_small(may_go) or self.from_main(may_go)

    def from_small(self, may_go: MayGo) -> Block | None:
        """Go once through the small queue."""
        for _ in range(len(self.small)):
            block = self.small.popleft()
            if self.uses[block.key] >= 2:
                self.main.append(block)
                self.uses[block.key] = 0
            elif may_go(block):
                self.ghosts.append(block.key)
                if len(self.ghosts) > self.ghost_blocks:
                    self.ghosts.popleft()
                return block
            else:
                self.small.append(block)
        return None

    def from_main(self, may_go: MayGo) -> Block | None:
        """Give each use, up to three, one more round."""
        for _ in range(5 * len(self.main)):
            block = self.main.popleft()
            uses = min(self.uses[block.key], 3)
            if uses == 0 and may_go(block):
                return block
            self.main.append(block)
            self.uses[block.key] = max(uses - 1, 0)
        return None

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        for blocks in (self.small, self.main):
            if block in blocks:
                blocks.remove(block)

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []


def make(variant: Variant, capacity: int) -> S3Fifo:
    """Return the policy of a tier of ``capacity`` blocks."""
    return S3Fifo(capacity)

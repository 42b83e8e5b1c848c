"""Small models of eviction orders that are queues: CLOCK, SIEVE, 2Q and S3-FIFO."""

from collections import deque
from collections.abc import Hashable

from order_base import Block, MayGo, Order, take_first, take_out


# CLOCK: first in, first out, with a second chance for what was used (Corbató 1968).
class Clock(Order):
    """A block that may not go is passed over like a used one: back to the newest end, its bit cleared."""

    def __init__(self) -> None:
        self.queue: deque[Block] = deque()
        self.used: set[Hashable] = set()

    def on_hit(self, block: Block) -> None:
        """Set the bit."""
        self.used.add(block.key)

    def insert(self, block: Block) -> None:
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
        if block in self.queue:
            self.queue.remove(block)
            self.used.discard(block.key)


# SIEVE: one queue, a visited bit, a hand that moves from old to new and stays there (Zhang, 2024).
class Sieve(Order):
    """A block that may not go is passed over like a visited one: its bit is cleared."""

    def __init__(self) -> None:
        #: Oldest first, so the hand moves upwards.
        self.queue: list[Block] = []
        self.visited: set[Hashable] = set()
        self.hand = 0

    def on_hit(self, block: Block) -> None:
        """Set the bit."""
        self.visited.add(block.key)

    def insert(self, block: Block) -> None:
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
        if block in self.queue:
            at = self.queue.index(block)
            del self.queue[at]
            self.hand -= at < self.hand
            self.visited.discard(block.key)


# 2Q: newcomers queue, what returns after it left is kept by recency (Johnson and Shasha, VLDB 1994).
class TwoQ(Order):
    """A quarter of the capacity for newcomers, and names of evicted blocks for half of it (libCacheSim's
    shares); lists are oldest first."""

    def __init__(self, capacity: int) -> None:
        self.newcomers: list[Block] = []
        self.main: list[Block] = []
        self.names: list[Hashable] = []
        self.newcomer_blocks = capacity // 4
        self.most_names = capacity // 2
        self.returned = False

    def on_miss(self, key: Hashable) -> None:
        """Note if the block was evicted recently; such a block joins the main list."""
        self.returned = key in self.names
        if self.returned:
            self.names.remove(key)

    def on_hit(self, block: Block) -> None:
        """Among the newcomers nothing moves."""
        if block in self.main:
            self.main.remove(block)
            self.main.append(block)

    def insert(self, block: Block) -> None:
        (self.main if self.returned else self.newcomers).append(block)
        self.returned = False

    def evict(self, may_go: MayGo) -> Block | None:
        """Take a newcomer where there are too many, else from the main list; else from the other."""
        lists = [self.newcomers, self.main]
        for blocks in lists if len(self.newcomers) > self.newcomer_blocks else lists[::-1]:
            victim = take_first(blocks, may_go)
            if victim is not None:
                if blocks is self.newcomers:
                    self.names = [*self.names, victim.key][-self.most_names :] if self.most_names else []
                return victim
        return None

    def remove(self, block: Block) -> None:
        take_out(block, self.newcomers, self.main)


# S3-FIFO: a small queue sifts, a main queue gives second chances, ghosts return (Yang et al. 2023).
class S3Fifo(Order):
    """A small queue of a tenth of the capacity, and ghosts for nine tenths; two uses move a block to the main
    queue.

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
        take_out(block, self.small, self.main)

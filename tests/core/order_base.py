"""Blocks, hooks and orders by a key of each block, for the small models of eviction orders."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, eq=False)
class Block:
    """One resident block: its key, where it stands in its prompt, and how it was used."""

    key: Hashable
    #: Blocks above it in its prompt.
    depth: int
    #: Uses while cached; the insertion is the first.
    hits: int
    #: Number of the release that used it last; a counter, never the clock.
    last_access: int
    #: Number of the release that inserted it.
    created: int
    last_access_ns: int
    #: Blocks that the request which inserted it found cached, and blocks it had to compute.
    found_blocks: int
    computed_blocks: int
    #: Name of the block in a sketch.
    name: int = 0


MayGo = Callable[[Block], bool]


class Queue(Protocol):
    """A list or a deque of blocks."""

    def __contains__(self, block: object, /) -> bool: ...

    def remove(self, block: Block, /) -> None: ...


def take_out(block: Block, *queues: Queue) -> None:
    """Remove a block from the queue that has it, if any."""
    for queue in queues:
        if block in queue:
            queue.remove(block)


def take_first(queue: list[Block], may_go: MayGo) -> Block | None:
    """Remove and return the first block of a list that may go."""
    victim = next(filter(may_go, queue), None)
    if victim is not None:
        queue.remove(victim)
    return victim


class Order:
    """An eviction order. Hooks come deepest block first where leaves are evicted first; ``Block`` is up to
    date at each.

    ``evict`` removes and returns a block for which ``may_go`` holds, or None; ``abort`` one that there is no
    more space for; ``remove`` forgets a block that left for another reason.
    """

    def on_miss(self, key: Hashable) -> None:
        """Learn of a miss before space is made."""

    def expire(self, now_ns: int) -> list[Block]:
        """Forget and return the blocks whose time has run out, the deepest first."""
        return []

    def abort(self, may_go: MayGo) -> Block | None:
        """Keep every block until space is asked for."""
        return None


class Ranked(Order):
    """Scans every block at every eviction; a policy defines ``key`` and its update from a victim."""

    def __init__(self) -> None:
        self.blocks: dict[Hashable, tuple[float, ...]] = {}
        self.by_key: dict[Hashable, Block] = {}

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the sort key of a block; called after each insertion and hit."""
        raise NotImplementedError

    def learn(self, key: tuple[float, ...]) -> None:
        """Take notice of the key of a block evicted to make room."""

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

"""Segments of recency, lowest first: a use lifts a block one segment, and what is too much falls back one."""

from __future__ import annotations

from kvcache_sim.reference.policies.block import Block, MayGo


class Segments:
    """Lists with room for so many blocks each, least recent first."""

    def __init__(self, rooms_blocks: list[int]) -> None:
        self.rooms_blocks = rooms_blocks
        self.lists: list[list[Block]] = [[] for _ in rooms_blocks]
        self.has_fallen = False

    def __len__(self) -> int:
        """Return the blocks in all segments."""
        return sum(map(len, self.lists))

    def __contains__(self, block: Block) -> bool:
        """Return whether a segment has the block."""
        return any(block in blocks for blocks in self.lists)

    def lift(self, block: Block) -> None:
        """Lift a block one segment; the least recent of each full segment on the way falls one down."""
        at = next(k for k, blocks in enumerate(self.lists) if block in blocks)
        self.lists[at].remove(block)
        top = min(at + 1, len(self.lists) - 1)
        self.lists[top].append(block)
        for k in range(top, 0, -1):
            if len(self.lists[k]) > self.rooms_blocks[k]:
                self.lists[k - 1].append(self.lists[k].pop(0))
                self.has_fallen = k == 1
            else:
                break

    def spill(self, may_go: MayGo) -> Block | None:
        """Take one out of the lowest segment where one fell into it and it is over its room."""
        if not self.has_fallen:
            return None
        self.has_fallen = len(self.lists[0]) > self.rooms_blocks[0]
        victim = next(filter(may_go, self.lists[0]), None) if self.has_fallen else None
        if victim is not None:
            self.lists[0].remove(victim)
        return victim

    def insert(self, block: Block) -> None:
        """Put a block into the lowest segment with room, or into the lowest of all."""
        rooms = zip(self.lists, self.rooms_blocks, strict=True)
        next((blocks for blocks, room in rooms if len(blocks) < room), self.lists[0]).append(block)

    def victim(self, may_go: MayGo) -> Block | None:
        """Return the least recent block that may go of the lowest segment that has one."""
        return next((block for blocks in self.lists for block in blocks if may_go(block)), None)

    def remove(self, block: Block) -> None:
        """Take a block out, if it is here."""
        for blocks in self.lists:
            if block in blocks:
                blocks.remove(block)

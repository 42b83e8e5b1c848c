"""Level 1: a function of a block; among the leaves, the block with the smallest value is evicted first."""

from __future__ import annotations

import dis
import heapq
from collections.abc import Callable, Container, Iterable
from typing import Any

from kvcache_sim.policies.plugins.views import BlockView

#: Called with a block view and the number of the current release; returns a comparable value.
PriorityFunction = Callable[[Any, int], Any]


class PriorityPolicy:
    """Keeps the leaves in a heap; ties are resolved by depth (deepest first), then by lower id.

    A function that reads its second argument is called for every leaf at every eviction. Any other function
    is called when a block is inserted, used, or becomes a leaf. Cost of an eviction: the logarithm of the
    evictable blocks; with ``now`` in use, one call for each of them.
    """

    mode = "leaves"

    def __init__(self, function: PriorityFunction) -> None:
        self.function = function
        self.uses_now = reads_second_argument(function)
        self.blocks: dict[int, BlockView] = {}
        self.current: dict[int, tuple[Any, int, int]] = {}
        self.heap: list[tuple[Any, int, int]] = []
        #: Blocks whose current entry is in the heap.
        self.listed: set[int] = set()
        #: Resident children of each block, by id; a block with children is reported by ``on_leaf`` later.
        self.followers: dict[int, int] = {}
        #: Blocks that became evictable, if the tier reports them, until they are found pinned.
        self.free: set[int] = set()

    def on_insert(self, b: BlockView, now: int) -> None:
        """Rank a new block."""
        self.blocks[b.id] = b
        self.followers[b.parent] = self.followers.get(b.parent, 0) + 1
        self.on_leaf(b, now)

    def on_hit(self, b: BlockView, now: int) -> None:
        """Update the rank of a used block."""
        self.on_leaf(b, now)

    def on_leaf(self, b: BlockView, now: int) -> None:
        """Rank a block whose last resident child was evicted."""
        self.current[b.id] = (self.function(b, now), -b.depth, b.id)
        self.listed.discard(b.id)
        self._list(b.id)

    def _list(self, block: int) -> None:
        if not self.uses_now and block not in self.listed and not self.followers.get(block):
            self.listed.add(block)
            heapq.heappush(self.heap, self.current[block])

    def victims(self, n: int, now: int, pinned: Container[int]) -> list[int] | None:
        """Return the first unpinned leaf."""
        freed = getattr(pinned, "freed", None)
        new = [block for block in freed() if block in self.blocks] if freed is not None else []
        if self.uses_now:
            return self._first_now(now, pinned, self.blocks if freed is None else new)
        for block in new:
            self._list(block)
        held = []
        found = None
        while self.heap and found is None:
            block = self.heap[0][2]
            if self.current.get(block) == self.heap[0]:
                if block not in pinned:
                    found = [block]
                    break
                # a block that ``on_leaf`` will report, or that has children, need not stay
                if freed is not None or self.followers.get(block):
                    self.listed.discard(block)
                else:
                    held.append(self.heap[0])
            heapq.heappop(self.heap)
        for entry in held:
            heapq.heappush(self.heap, entry)
        return found

    def _first_now(self, now: int, pinned: Container[int], new: Iterable[int]) -> list[int] | None:
        self.free.update(new)
        self.free = {block for block in self.free if block in self.blocks and block not in pinned}
        if not self.free:
            return None
        return [min(self.free, key=lambda id: (self.function(b := self.blocks[id], now), -b.depth, id))]

    def on_remove(self, b: BlockView, now: int) -> None:
        """Remove a block."""
        del self.current[b.id]
        del self.blocks[b.id]
        self.listed.discard(b.id)
        self.followers[b.parent] -= 1
        if not self.followers[b.parent]:
            del self.followers[b.parent]


def reads_second_argument(function: Any) -> bool:
    """Return True if a function may read its second argument, or if its code cannot be inspected."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or code.co_argcount < 2:
        return code is None
    name = code.co_varnames[code.co_argcount - 1]
    if name in code.co_cellvars:
        return True
    return any(i.argval == name and i.opname.startswith("LOAD") for i in dis.get_instructions(code))

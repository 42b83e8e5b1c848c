"""Level 1: a function of a block; of the leaves, the block with the smallest value goes first."""

from __future__ import annotations

import dis
import heapq
from collections.abc import Callable, Container
from typing import Any

from kvcache_sim.policies.plugins.views import BlockView

#: Called with a block view and the number of the release at work; returns anything that orders.
PriorityFunction = Callable[[Any, int], Any]


class PriorityPolicy:
    """Keeps the leaves in a heap; ties go to the deepest block, then to the lower id.

    A function that reads its second argument is asked anew about every leaf at every eviction; one that does
    not is asked when a block is inserted, used, or becomes a leaf.
    """

    mode = "leaves"

    def __init__(self, function: PriorityFunction) -> None:
        self.function = function
        self.uses_now = reads_second_argument(function)
        self.blocks: dict[int, BlockView] = {}
        self.current: dict[int, tuple[Any, int, int]] = {}
        self.heap: list[tuple[Any, int, int]] = []

    def on_insert(self, b: BlockView, now: int) -> None:
        """Rank a new block."""
        self.blocks[b.id] = b
        self.on_leaf(b, now)

    def on_hit(self, b: BlockView, now: int) -> None:
        """Rank a used block anew."""
        self.on_leaf(b, now)

    def on_leaf(self, b: BlockView, now: int) -> None:
        """Rank a block whose last resident child has left."""
        entry = (self.function(b, now), -b.depth, b.id)
        self.current[b.id] = entry
        if not self.uses_now:
            heapq.heappush(self.heap, entry)

    def victims(self, n: int, now: int, pinned: Container[int]) -> list[int] | None:
        """Return the first unpinned leaf."""
        if self.uses_now:
            free = [b for b in self.blocks.values() if b.id not in pinned]
            if not free:
                return None
            return [min(free, key=lambda b: (self.function(b, now), -b.depth, b.id)).id]
        held = []
        found = None
        while self.heap and found is None:
            entry = heapq.heappop(self.heap)
            if self.current.get(entry[2]) != entry:
                continue
            held.append(entry)
            if entry[2] not in pinned:
                found = [entry[2]]
        for entry in held:
            heapq.heappush(self.heap, entry)
        return found

    def on_remove(self, b: BlockView, now: int) -> None:
        """Forget a block."""
        del self.current[b.id]
        del self.blocks[b.id]


def reads_second_argument(function: Any) -> bool:
    """Return whether a function may read its second argument; True where its code cannot be seen."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or code.co_argcount < 2:
        return code is None
    name = code.co_varnames[code.co_argcount - 1]
    if name in code.co_cellvars:
        return True
    return any(i.argval == name and i.opname.startswith("LOAD") for i in dis.get_instructions(code))

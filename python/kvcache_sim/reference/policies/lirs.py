"""LIRS: who returns soon stays, judged by the distance of the last two uses (Jiang and Zhang 2002)."""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block, MayGo


class Lirs:
    """The stack holds names, bottom first; a name in ``low`` returned soon, one in ``queue`` did not (yet).

    A name of the stack in neither has left. Where libCacheSim 0.3.5 departs from the paper, so does this.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.queue_blocks = max(1, capacity // 100)
        self.most_low = capacity - self.queue_blocks
        self.stack: list[Hashable] = []
        self.low: dict[Hashable, Block] = {}
        self.queue: dict[Hashable, Block] = {}
        self.left: list[Hashable] = []

    def on_miss(self, key: Hashable) -> None:
        """Nothing to learn before it is inserted."""

    def on_hit(self, block: Block) -> None:
        """Go up the stack; a block of the queue whose name the stack has becomes low."""
        key = block.key
        if key in self.low:
            self._to_top(key)
        elif key in self.stack:
            self._to_top(key)
            self.low[key] = self.queue.pop(key)
            while len(self.low) > self.most_low:
                self._take_one_down()
        else:
            self.queue[key] = self.queue.pop(key)
            while self.low and len(self.low) >= self.most_low:
                self._take_one_down()
            self._to_top(key)
        if key in self.low:
            self._prune()
        self._forget()

    def insert(self, block: Block) -> None:
        """Become low when the stack knows the name or has too few, else join the queue."""
        key = block.key
        if key in self.stack:
            self.stack.remove(key)
            self.left.remove(key)
            while self.low and len(self.low) >= self.most_low:
                self._take_one_down()
            self.low[key] = block
        else:
            (self.low if len(self.low) < self.most_low else self.queue)[key] = block
        self._to_top(key)
        self._forget()

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the queue's oldest, else the low one nearest to the bottom."""
        for block in self.queue.values():
            if may_go(block):
                return self._leave_queue(block)
        for key in self.stack:
            if key in self.low and may_go(self.low[key]):
                block = self.low[key]
                self.remove(block)
                return block
        return None

    def give_up(self, may_go: MayGo) -> Block | None:
        """Return the queue's oldest while the queue is over its room."""
        if len(self.queue) <= self.queue_blocks:
            return None
        victim = next(filter(may_go, self.queue.values()), None)
        return None if victim is None else self._leave_queue(victim)

    def remove(self, block: Block) -> None:
        """Leave the queue or the low ones, and the stack."""
        here = self.low.pop(block.key, None) or self.queue.pop(block.key, None)
        if here is not None and block.key in self.stack:
            self.stack.remove(block.key)
            self._prune()

    def expire(self, now_ns: int) -> list[Block]:
        """Nothing expires."""
        return []

    def _to_top(self, key: Hashable) -> None:
        if key in self.stack:
            self.stack.remove(key)
        self.stack.append(key)

    def _prune(self) -> None:
        """Take names off the bottom until a low one is there."""
        while self.stack and self.stack[0] not in self.low:
            key = self.stack.pop(0)
            if key in self.left:
                self.left.remove(key)

    def _take_one_down(self) -> None:
        """Let the low one at the bottom join the queue."""
        self._prune()
        key = self.stack.pop(0)
        self.queue[key] = self.low.pop(key)
        self._prune()

    def _leave_queue(self, block: Block) -> Block:
        del self.queue[block.key]
        if block.key in self.stack:
            self.left.append(block.key)
        self._forget()
        return block

    def _forget(self) -> None:
        """Forget who left longest ago while the stack is longer than twice the room."""
        while len(self.stack) > 2 * self.capacity and self.left:
            self.stack.remove(self.left.pop(0))


def make(variant: Variant, capacity: int) -> Lirs:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Lirs(capacity)

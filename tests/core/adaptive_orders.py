"""Small models of eviction orders that adapt to what returns: ARC and LIRS."""

from collections.abc import Hashable

from order_base import Block, MayGo, Order, take_first, take_out


# Adaptive replacement: recency and frequency share the capacity, ghosts move the border (Megiddo and Modha
# 2003).
class Arc(Order):
    """The paper's lists, least recent first. Where a list's victim may not go, the next that may is taken."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.t1: list[Block] = []
        self.t2: list[Block] = []
        self.b1: list[Hashable] = []
        self.b2: list[Hashable] = []
        self.target = 0.0
        self.ghost = ""

    def on_hit(self, block: Block) -> None:
        """Case I: the block has been used again."""
        (self.t1 if block in self.t1 else self.t2).remove(block)
        self.t2.append(block)

    def on_miss(self, key: Hashable) -> None:
        """Cases II, III and IV: the ghosts answer, and the directory stays within its bounds."""
        if key in self.b1:
            self.target = min(self.target + max(len(self.b2) / len(self.b1), 1.0), self.capacity)
            self.b1.remove(key)
            self.ghost = "b1"
        elif key in self.b2:
            self.target = max(self.target - max(len(self.b1) / len(self.b2), 1.0), 0.0)
            self.b2.remove(key)
            self.ghost = "b2"
        else:
            self.ghost = ""
            if len(self.t1) + len(self.b1) >= self.capacity:
                del self.b1[:1]
            elif len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2) >= 2 * self.capacity:
                del self.b2[:1]

    def insert(self, block: Block) -> None:
        (self.t2 if self.ghost else self.t1).append(block)
        self.ghost = ""

    def evict(self, may_go: MayGo) -> Block | None:
        """Evict by REPLACE; if the first list alone fills the capacity, its victim leaves no ghost."""
        if not self.ghost and len(self.t1) >= self.capacity:
            return take_first(self.t1, may_go)
        over = len(self.t1) > self.target or (len(self.t1) == self.target and self.ghost == "b2")
        pairs = [(self.t1, self.b1), (self.t2, self.b2)]
        for blocks, ghosts in pairs if self.t1 and over else pairs[::-1]:
            victim = take_first(blocks, may_go)
            if victim is not None:
                ghosts.append(victim.key)
                return victim
        return None

    def remove(self, block: Block) -> None:
        take_out(block, self.t1, self.t2)


# LIRS: blocks that return soon stay, by the distance of their last two uses (Jiang and Zhang 2002).
class Lirs(Order):
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

    def on_hit(self, block: Block) -> None:
        """Move to the top of the stack; a block of the queue whose name the stack holds becomes low."""
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
        """Become low if the stack holds the name or too few are low, else join the queue."""
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

    def abort(self, may_go: MayGo) -> Block | None:
        """Return the queue's oldest block while the queue is over its capacity."""
        if len(self.queue) <= self.queue_blocks:
            return None
        victim = next(filter(may_go, self.queue.values()), None)
        return None if victim is None else self._leave_queue(victim)

    def remove(self, block: Block) -> None:
        here = self.low.pop(block.key, None) or self.queue.pop(block.key, None)
        if here is not None and block.key in self.stack:
            self.stack.remove(block.key)
            self._prune()

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
        """Forget the blocks evicted longest ago while the stack is longer than twice the capacity."""
        while len(self.stack) > 2 * self.capacity and self.left:
            self.stack.remove(self.left.pop(0))

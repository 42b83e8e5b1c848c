"""Small models of every eviction order, block by block: no code is shared with the core.

Each scans what it has; a class is one policy, with the paper it follows above it. ``order_replay.py`` replays
traces over them.
"""

import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from kvcache_sim.policies.resolve import row_of
from kvcache_sim.policies.settings import Variant


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


# First in, first out: the block inserted first, whatever its use (Belady 1966).
class Fifo(Ranked):
    """Smallest insertion first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the insertion."""
        return (block.created,)


# Least recently used: the block whose last use is longest ago (Mattson et al. 1970).
class Lru(Ranked):
    """Smallest last access first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the last access."""
        return (block.last_access,)


# Least frequently used, counts kept only while cached; ties by recency (Robinson and Devarakonda 1990).
class Lfu(Ranked):
    """Fewest uses first."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return uses, then the last access."""
        return (block.hits, block.last_access)


# Time to live: a block unused for the time is gone; the next to expire goes first (Jung et al. 2003).
class Ttl(Lru):
    """One time to live for all, so the order of expiry is the order of use."""

    def __init__(self, ttl_ns: int) -> None:
        super().__init__()
        self.ttl_ns = ttl_ns

    def lapsed(self, block: Block, now_ns: int) -> bool:
        """Return whether a block was not used for the time to live."""
        return block.last_access_ns + self.ttl_ns <= now_ns

    def expire(self, now_ns: int) -> list[Block]:
        """Forget what was not used for the time to live."""
        gone = [b for b in self.by_key.values() if self.lapsed(b, now_ns)]
        return [self.forget(b) for b in sorted(gone, key=lambda b: -b.depth)]


# Length-aware: like least frequently used, but blocks later in their prompt go first (Mooncake 2025).
class LengthAware(Ranked):
    """Fewest uses first, then the deepest, then the least recent."""

    def key(self, block: Block) -> tuple[float, ...]:
        """Return uses, minus the depth, the last access."""
        return (block.hits, -block.depth, block.last_access)


# Greedy dual size frequency: age + uses × cost / size (Cherkasova 1998); blocks have equal size and cost.
class Gdsf(Ranked):
    """The age is the priority of the last victim: what stays must earn more than what left."""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0.0

    def key(self, block: Block) -> tuple[float, ...]:
        """Return age + uses, then the last access."""
        return (self.age + block.hits, block.last_access)

    def learn(self, key: tuple[float, ...]) -> None:
        """Grow old with the victims."""
        self.age = max(self.age, key[0])


# Prefix-aware GDSF: age + uses × cost of computing it again (RAGCache, Jin et al. 2024).
class Pgdsf(Gdsf):
    """The cost is prefill time per computed block: 1 + its mean context over ``attention_blocks``.

    RAGCache interpolates a measured profile; without a machine the arithmetic of a transformer stands in:
    ``attention_blocks`` is the context at which attending to it costs as much as all else.
    """

    def __init__(self, attention_blocks: float) -> None:
        super().__init__()
        self.attention_blocks = attention_blocks

    def key(self, block: Block) -> tuple[float, ...]:
        """Return age + uses × cost, then the last access."""
        context = block.found_blocks + block.computed_blocks / 2.0
        cost = 1.0 + context / self.attention_blocks
        return (self.age + block.hits * cost, block.last_access)


#: What a block is worth when no range names it, and after its duration (TensorRT-LLM's default).
DEFAULT_PRIORITY = 35


# Priorities by token range with durations, least recent first within one (TensorRT-LLM's config).
class Priority(Ranked):
    """Ranges are (first block, end, priority 0 to 100, duration in ns or None); the first fit counts."""

    def __init__(self, ranges: list[tuple[int, int, int, int | None]]) -> None:
        super().__init__()
        self.ranges = ranges

    def range_of(self, block: Block) -> tuple[int, int | None]:
        """Return the priority of a block and for how long."""
        for start, end, priority, duration_ns in self.ranges:
            if start <= block.depth < end:
                return priority, duration_ns
        return DEFAULT_PRIORITY, None

    def key(self, block: Block) -> tuple[float, ...]:
        """Return the priority, then the last access."""
        return (self.range_of(block)[0], block.last_access)

    def expire(self, now_ns: int) -> list[Block]:
        """Let priorities fall back; no block leaves."""
        for block in self.by_key.values():
            duration_ns = self.range_of(block)[1]
            if duration_ns is not None and block.last_access_ns + duration_ns <= now_ns:
                self.blocks[block.key] = (DEFAULT_PRIORITY, block.last_access)
        return []


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
        """Join as the newest."""
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
        """Leave its queue."""
        if block in self.queue:
            at = self.queue.index(block)
            del self.queue[at]
            self.hand -= at < self.hand
            self.visited.discard(block.key)


# Segmented LRU: reused blocks are protected; demoted blocks get another round (Karedla et al. 1994).
class Slru(Order):
    """Segmented LRU with up to four fifths of the capacity protected. Lists are oldest first."""

    def __init__(self, capacity: int) -> None:
        self.probation: list[Block] = []
        self.protected: list[Block] = []
        self.protected_blocks = capacity * 4 // 5

    def on_hit(self, block: Block) -> None:
        """Protect the block; the least recent protected one may fall out."""
        (self.protected if block in self.protected else self.probation).remove(block)
        self.protected.append(block)
        if len(self.protected) > self.protected_blocks:
            self.probation.append(self.protected.pop(0))

    def insert(self, block: Block) -> None:
        """Join on probation."""
        self.probation.append(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the least recent on probation, else of the protected."""
        victim = next(filter(may_go, [*self.probation, *self.protected]), None)
        if victim is not None:
            self.remove(victim)
        return victim

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        for blocks in (self.probation, self.protected):
            if block in blocks:
                blocks.remove(block)


class Segments:
    """Lists with a capacity in blocks each, least recent first."""

    def __init__(self, segment_blocks: list[int]) -> None:
        self.segment_blocks = segment_blocks
        self.lists: list[list[Block]] = [[] for _ in segment_blocks]
        self.has_fallen = False

    def __len__(self) -> int:
        """Return the blocks in all segments."""
        return sum(map(len, self.lists))

    def __contains__(self, block: Block) -> bool:
        """Return whether a segment has the block."""
        return any(block in blocks for blocks in self.lists)

    def lift(self, block: Block) -> None:
        """Promote a block by one segment; an overfull segment demotes its least recent block, down to the
        lowest."""
        at = next(k for k, blocks in enumerate(self.lists) if block in blocks)
        self.lists[at].remove(block)
        top = min(at + 1, len(self.lists) - 1)
        self.lists[top].append(block)
        for k in range(top, 0, -1):
            if len(self.lists[k]) > self.segment_blocks[k]:
                self.lists[k - 1].append(self.lists[k].pop(0))
                self.has_fallen = k == 1
            else:
                break

    def spill(self, may_go: MayGo) -> Block | None:
        """Remove and return a block of the lowest segment if a demotion put it over its capacity."""
        if not self.has_fallen:
            return None
        self.has_fallen = len(self.lists[0]) > self.segment_blocks[0]
        victim = next(filter(may_go, self.lists[0]), None) if self.has_fallen else None
        if victim is not None:
            self.lists[0].remove(victim)
        return victim

    def insert(self, block: Block) -> None:
        """Insert a block into the lowest segment that is not full, or into the lowest of all."""
        capacities = zip(self.lists, self.segment_blocks, strict=True)
        next((blocks for blocks, bounds in capacities if len(blocks) < bounds), self.lists[0]).append(block)

    def victim(self, may_go: MayGo) -> Block | None:
        """Return the least recent block that may go of the lowest segment that has one."""
        return next((block for blocks in self.lists for block in blocks if may_go(block)), None)

    def remove(self, block: Block) -> None:
        """Take a block out, if it is here."""
        for blocks in self.lists:
            if block in blocks:
                blocks.remove(block)


# S4LRU: four segments of recency, of which each use climbs one (Huang et al., SOSP 2013).
class S4Lru(Order):
    """Segments of a quarter of the capacity, rounded down; an empty cache fills from below (libCacheSim)."""

    def __init__(self, capacity: int) -> None:
        self.segments = Segments([capacity // 4] * 4)

    def on_hit(self, block: Block) -> None:
        """Climb."""
        self.segments.lift(block)

    def insert(self, block: Block) -> None:
        """Insert a block into the lowest segment that is not full."""
        self.segments.insert(block)

    def evict(self, may_go: MayGo) -> Block | None:
        """Take the least recent of the lowest segment."""
        victim = self.segments.victim(may_go)
        if victim is not None:
            self.segments.remove(victim)
        return victim

    def abort(self, may_go: MayGo) -> Block | None:
        """Release the block that a demotion made one too many."""
        return self.segments.spill(may_go)

    def remove(self, block: Block) -> None:
        """Leave its segment."""
        self.segments.remove(block)


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
        """Join the main list, or the newcomers."""
        (self.main if self.returned else self.newcomers).append(block)
        self.returned = False

    def evict(self, may_go: MayGo) -> Block | None:
        """Take a newcomer where there are too many, else from the main list; else from the other."""
        lists = [self.newcomers, self.main]
        for blocks in lists if len(self.newcomers) > self.newcomer_blocks else lists[::-1]:
            victim = next(filter(may_go, blocks), None)
            if victim is not None:
                blocks.remove(victim)
                if blocks is self.newcomers:
                    self.names = [*self.names, victim.key][-self.most_names :] if self.most_names else []
                return victim
        return None

    def remove(self, block: Block) -> None:
        """Leave its list."""
        for blocks in (self.newcomers, self.main):
            if block in blocks:
                blocks.remove(block)


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
        """Join the list of what came once, or of what came again."""
        (self.t2 if self.ghost else self.t1).append(block)
        self.ghost = ""

    def evict(self, may_go: MayGo) -> Block | None:
        """Evict by REPLACE; if the first list alone fills the capacity, its victim leaves no ghost."""
        if not self.ghost and len(self.t1) >= self.capacity:
            return self.take(self.t1, may_go)
        over = len(self.t1) > self.target or (len(self.t1) == self.target and self.ghost == "b2")
        pairs = [(self.t1, self.b1), (self.t2, self.b2)]
        for blocks, ghosts in pairs if self.t1 and over else pairs[::-1]:
            victim = self.take(blocks, may_go)
            if victim is not None:
                ghosts.append(victim.key)
                return victim
        return None

    def take(self, blocks: list[Block], may_go: MayGo) -> Block | None:
        """Remove the least recent block of a list that may go."""
        victim = next(filter(may_go, blocks), None)
        if victim is not None:
            blocks.remove(victim)
        return victim

    def remove(self, block: Block) -> None:
        """Leave its queue."""
        for blocks in (self.t1, self.t2):
            if block in blocks:
                blocks.remove(block)


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
        """Leave the queue or the low ones, and the stack."""
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


_MASK = 2**64 - 1
_P1, _P2, _P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
_P4, _P5 = 9650029242287828579, 2870177450012600261


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def xxh64(number: int, seed: int) -> int:
    """Return the XXH64 of a number's eight bytes, little endian."""
    lane = _rotated(number * _P2 & _MASK, 31) * _P1 & _MASK
    hashed = _rotated((seed + _P5 + 8 & _MASK) ^ lane, 27) * _P1 + _P4 & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


class Sketch:
    """A count-min sketch of ten counters a name, all of them raised by an addition (libCacheSim 0.3.5)."""

    def __init__(self, names: int) -> None:
        self.counters = [0] * max(1, math.ceil(14.3775875661 * names))

    def counters_of(self, name: int) -> list[int]:
        """Return the ten counters of a name."""
        first, step = (xxh64(name & _MASK, seed) & 0xFFFFFFFF for seed in (0x12345678, 0x12344321))
        return [(first + i * step) % 2**32 % len(self.counters) for i in range(10)]

    def add(self, name: int) -> None:
        """Count a name once."""
        for counter in self.counters_of(name):
            self.counters[counter] += 1

    def estimate(self, name: int) -> int:
        """Return how often a name was counted, at least."""
        return min(self.counters[counter] for counter in self.counters_of(name))


# W-TinyLFU: a window, and a main cache that admits only blocks used more often (Einziger et al. 2017).
class WTinyLfu(Order):
    """A window of a hundredth of the capacity, at least a block; the rest is an SLRU of 1 : 4."""

    def __init__(self, capacity: int) -> None:
        self.main_blocks = capacity - max(1, capacity // 100)
        self.window: list[Block] = []
        self.main = Segments([self.main_blocks // 5, 4 * self.main_blocks // 5])
        self.sketch = Sketch(self.main_blocks)
        self.uses = 0

    def on_hit(self, block: Block) -> None:
        """Be recent in the window, or climb and be counted in the main cache."""
        if block in self.window:
            self.window.remove(block)
            self.window.append(block)
            return
        self.main.lift(block)
        self.sketch.add(block.name)
        self.uses += 1
        if self.uses >= 32 * self.main_blocks:
            self.sketch.counters = [count // 2 for count in self.sketch.counters]
            self.uses = 0

    def insert(self, block: Block) -> None:
        """Join the window."""
        self.window.append(block)
        self.sketch.add(block.name)

    def _admit(self, block: Block) -> None:
        self.window.remove(block)
        self.main.insert(block)
        self.sketch.add(block.name)

    def evict(self, may_go: MayGo) -> Block | None:
        """Fill the main cache from the window, then let the oldest there and the main victim compete."""
        while self.window and len(self.main) < self.main_blocks:
            self._admit(self.window[0])
        newcomer = next(filter(may_go, self.window), None)
        victim = self.main.victim(may_go)
        if newcomer is None or victim is None:
            loser = newcomer or victim
        elif self.sketch.estimate(newcomer.name) > self.sketch.estimate(victim.name):
            self.main.remove(victim)
            self._admit(newcomer)
            return victim
        else:
            loser = newcomer
        if loser is not None and loser is newcomer:
            self.sketch.add(loser.name)
        if loser is not None:
            self.remove(loser)
        return loser

    def abort(self, may_go: MayGo) -> Block | None:
        """Release the block that a demotion made one too many in the main cache."""
        return self.main.spill(may_go)

    def remove(self, block: Block) -> None:
        """Leave the window or the main cache."""
        if block in self.window:
            self.window.remove(block)
        self.main.remove(block)


#: By the module of a policy's row: builds the order for a capacity in blocks.
ORDERS: dict[str, Callable[[Variant, int], Order]] = {
    "fifo": lambda variant, capacity: Fifo(),
    "lru": lambda variant, capacity: Lru(),
    "lfu": lambda variant, capacity: Lfu(),
    "ttl": lambda variant, capacity: Ttl(variant.ttl_ns),
    "length_aware": lambda variant, capacity: LengthAware(),
    "gdsf": lambda variant, capacity: Gdsf(),
    "pgdsf": lambda variant, capacity: Pgdsf(variant.attention_blocks),
    "priority": lambda variant, capacity: Priority(list(variant.ranges)),
    "clock": lambda variant, capacity: Clock(),
    "sieve": lambda variant, capacity: Sieve(),
    "slru": lambda variant, capacity: Slru(capacity),
    "s4lru": lambda variant, capacity: S4Lru(capacity),
    "twoq": lambda variant, capacity: TwoQ(capacity),
    "arc": lambda variant, capacity: Arc(capacity),
    "s3fifo": lambda variant, capacity: S3Fifo(capacity),
    "lirs": lambda variant, capacity: Lirs(capacity),
    "wtinylfu": lambda variant, capacity: WTinyLfu(capacity),
}


def make_order(variant: Variant, capacity: int) -> Order:
    """Return the model of a policy with its setting."""
    return ORDERS[row_of(variant.name).module](variant, capacity)

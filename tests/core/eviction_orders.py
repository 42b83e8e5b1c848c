"""Small models of every eviction order, block by block: no code is shared with the core.

Each scans what it has; a class is one policy, with the paper it follows above it. Here are the orders by a key
of each block, and the table of all; ``order_replay.py`` replays traces over them.
"""

from collections.abc import Callable

from adaptive_orders import Arc, Lirs
from kvcache_sim.policies.resolve import row_of
from kvcache_sim.policies.settings import Variant
from order_base import Block, Order, Ranked
from queue_orders import Clock, S3Fifo, Sieve, TwoQ
from segment_orders import S4Lru, Slru, WTinyLfu


# First in, first out: the block inserted first, whatever its use (Belady 1966).
class Fifo(Ranked):
    """Smallest insertion first."""

    def key(self, block: Block) -> tuple[float, ...]:
        return (block.created,)


# Least recently used: the block whose last use is longest ago (Mattson et al. 1970).
class Lru(Ranked):
    """Smallest last access first."""

    def key(self, block: Block) -> tuple[float, ...]:
        return (block.last_access,)


# Least frequently used, counts kept only while cached; ties by recency (Robinson and Devarakonda 1990).
class Lfu(Ranked):
    """Fewest uses first."""

    def key(self, block: Block) -> tuple[float, ...]:
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
        return (block.hits, -block.depth, block.last_access)


# Greedy dual size frequency: age + uses × cost / size (Cherkasova 1998); blocks have equal size and cost.
class Gdsf(Ranked):
    """The age is the priority of the last victim: what stays must earn more than what left."""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0.0

    def key(self, block: Block) -> tuple[float, ...]:
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
        return (self.range_of(block)[0], block.last_access)

    def expire(self, now_ns: int) -> list[Block]:
        """Let priorities fall back; no block leaves."""
        for block in self.by_key.values():
            duration_ns = self.range_of(block)[1]
            if duration_ns is not None and block.last_access_ns + duration_ns <= now_ns:
                self.blocks[block.key] = (DEFAULT_PRIORITY, block.last_access)
        return []


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

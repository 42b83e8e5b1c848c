"""Eviction orders of a tier: LRU, FIFO, LFU and TTL (semantics 2).

A block may leave a tier when its copy is ready, has no user, and no child block has a copy there: leaves go
first. Of these the smallest rank goes first, and of equal ranks the deepest block. LRU ranks by last access.
The other three keep a history of each block, from its first release on the tier, or from the time it may
first leave. FIFO ranks by the start of the history; LFU by its number of uses, then by the last use; TTL by
the last use. Under TTL a block lapses once it has been unused for the time to live: lapsed blocks go before
all others, and go without a shortage as well. Candidates are kept in a heap: a block is pushed whenever it
becomes a candidate or its rank changes, and a stale entry is dropped when it is popped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_S, parse_time_ns
from kvcache_sim.spec.blocks import Block

#: Prompt caches of hosted models keep a prefix for five minutes after its last use.
_DEFAULT_TTL_NS = 300 * NS_PER_S

#: Sort key of candidates, the smallest first.
Rank = tuple[int, ...]


@dataclass(slots=True)
class _History:
    """A block's uses on one tier since it entered the order."""

    #: Counts the blocks that have entered.
    entry: int
    created: int
    last_use: int
    last_use_ns: int
    uses: int = 1


_RANKS: dict[str, Callable[[_History], Rank]] = {
    "fifo": lambda history: (history.created,),
    "lfu": lambda history: (history.uses, history.last_use),
    "ttl": lambda history: (history.last_use,),
}


class _Candidates:
    """The blocks that may leave a tier, by rank. Cost: logarithmic per change of a rank."""

    def __init__(self, tier: int, rank: Callable[[Block], Rank]) -> None:
        self._tier, self._rank = tier, rank
        self._heap: list[tuple[Rank, int, Block]] = []
        self._pushes = count()

    def push(self, block: Block) -> None:
        """Add a candidate with its current rank."""
        heappush(self._heap, (self._rank(block), next(self._pushes), block))

    def first(self) -> Block | None:
        """Return the candidate of the smallest rank; None without candidates."""
        while self._heap:
            rank, _, block = self._heap[0]
            copy = block.copies[self._tier]
            if copy.evictable and not copy.children and self._rank(block) == rank:
                return block
            heappop(self._heap)
        return None


class EvictionOrder:
    """The order in which blocks leave one tier: ``lru``, ``fifo``, ``lfu``, ``ttl`` or ``ttl:300s``."""

    def __init__(self, tier: int, policy: str) -> None:
        name, _, setting = policy.partition(":")
        if name not in (*_RANKS, "lru") or (setting and name != "ttl"):
            raise UsageError(
                "not covered", where="--engine spec", got=policy, expected="lru, fifo, lfu or ttl"
            )
        self.tier = tier
        self._histories: dict[Block, _History] | None = None if name == "lru" else {}
        self._entries = count()
        self._ttl_ns = parse_time_ns(setting) if setting else _DEFAULT_TTL_NS
        rank_of = _RANKS.get(name)
        self._by_rank = _Candidates(tier, self._by_last_access if rank_of is None else self._by(rank_of))
        self._by_last_use = _Candidates(tier, self._by(lambda h: (h.last_use_ns,))) if name == "ttl" else None

    def _by_last_access(self, block: Block) -> Rank:
        return block.copies[self.tier].last_access, -block.depth, block.key

    def _by(self, rank: Callable[[_History], Rank]) -> Callable[[Block], Rank]:
        histories = self._histories
        assert histories is not None

        def ranked(block: Block) -> Rank:
            history = histories[block]
            return *rank(history), -block.depth, history.entry

        return ranked

    def offer(self, block: Block, clock: int, now_ns: int) -> None:
        """Add a block that at most its children keep, at access number ``clock``; leaves are candidates."""
        copy = block.copies[self.tier]
        if self._histories is not None and block not in self._histories:
            self._enter(block, clock, now_ns)
        if not copy.children:
            self._by_rank.push(block)
            if self._by_last_use is not None:
                self._by_last_use.push(block)

    def on_release(self, block: Block, clock: int, now_ns: int) -> None:
        """Count a use of a block that is ready on the tier, when a request that held it releases it."""
        if self._histories is None:
            return
        history = self._histories.get(block)
        if history is None:
            self._enter(block, clock, now_ns)
        else:
            history.uses += 1
            history.last_use, history.last_use_ns = clock, now_ns

    def _enter(self, block: Block, clock: int, now_ns: int) -> None:
        assert self._histories is not None
        last_access = block.copies[self.tier].last_access
        self._histories[block] = _History(next(self._entries), clock, last_access, now_ns)

    def on_absent(self, block: Block) -> None:
        """Forget a block that has left the tier."""
        if self._histories is not None:
            self._histories.pop(block, None)

    def next_victim(self, now_ns: int) -> Block | None:
        """Return the block to evict next; None if no block may leave."""
        return self.next_lapsed(now_ns) or self._by_rank.first()

    def next_lapsed(self, now_ns: int) -> Block | None:
        """Return the next block whose time to live has passed; None if there is none."""
        block = None if self._by_last_use is None else self._by_last_use.first()
        if block is None or self._histories is None:
            return None
        return block if self._histories[block].last_use_ns + self._ttl_ns <= now_ns else None

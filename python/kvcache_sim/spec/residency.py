"""Which blocks are on which tier, who uses them, and which of them may leave (seed 001; semantics 2).

The tree of blocks is the look-up structure of seed 001 (``KVBlockTrie``). A look-up walks a request's keys
from the root and finds the leading run of blocks that have a copy on any tier; looking changes nothing.
``_set_state`` and ``_set_ready`` mark a copy present or absent with its times: seed 001's
``set_storage_layer_info_timestamps``. A block that is in use on a tier keeps its copy there. Otherwise a
ready copy may leave, with one exception: the last copy of a block that is in use on any other tier stays on
the slowest tier. A block leaves the tree with its last copy, and all blocks below it with it, for they
cannot be found any more; of these a block in use stays until its last user has gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from typing import NamedTuple

from kvcache_sim.errors import StoreError
from kvcache_sim.spec.blocks import (
    ABSENT,
    GPU,
    NO_MOVE,
    READY,
    Block,
    Copy,
    Lease,
    Move,
    Order,
    Tier,
    Times,
)
from kvcache_sim.spec.eviction import EvictionOrder
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.records import RollingDigest

_UNBOUNDED = 1 << 60
#: In place of a time that is not known yet.
NOT_YET = 1 << 62
#: Blocks from a first one to one past the last: (fastest tier, first, past the last, move that writes them).
Part = tuple[int, int, int, int]


class Room(NamedTuple):
    """Blocks of a tier by use: the first four sum to its capacity; the last is a part of the cached ones."""

    free_blocks: int
    active_blocks: int
    cached_blocks: int
    in_flight_blocks: int
    evictable_blocks: int

    @property
    def capacity_blocks(self) -> int:
        """All blocks of the tier."""
        return sum(self[:4])


class Losses(NamedTuple):
    """Blocks that a tier has lost so far: evicted; evicted but refused by the tier below; unreachable."""

    evicted_blocks: int
    overflowed_blocks: int
    orphaned_blocks: int


def refused(what: str, expected: str) -> StoreError:
    """Return the error of a call that the store cannot obey."""
    return StoreError(what, "store", "", expected)


class Residency:
    """The tree of blocks over one tier or more.

    Args:
        keys: The names of the requests' blocks.
        capacities_blocks: Blocks of each tier, fast to slow; None without bound.
        write_back: Whether each tier writes its victims to the one below.
        policies: Eviction order of each tier; None is LRU everywhere.
    """

    def __init__(
        self,
        keys: Keys,
        capacities_blocks: Sequence[int | None],
        write_back: Sequence[bool],
        policies: Sequence[str] | None = None,
    ) -> None:
        self.keys = keys
        sizes = [_UNBOUNDED if blocks is None else blocks for blocks in capacities_blocks]
        self.tiers = [Tier(n, size, size, write_back[n]) for n, size in enumerate(sizes)]
        self.orders = [
            EvictionOrder(n, "lru" if policies is None else policies[n]) for n in range(len(sizes))
        ]
        self.root = Block(-1, -1, None, -1, [Copy(tier) for tier in range(len(sizes))])
        #: Blocks of the tree without a copy, which users keep.
        self.gone_blocks = 0
        self.leases: dict[int, Lease] = {}
        self.moves: dict[int, Move] = {}
        #: Ends of paths in use by ``protect``: (tier, last block).
        self.holds: dict[int, tuple[int, Block]] = {}
        #: The time of the last eviction or release, and the latest time of any.
        self.now_ns = 0
        self.latest_ns = 0
        #: Blocks computed twice and merged.
        self.merged_blocks = 0
        #: Counts accesses; and when each was.
        self.clock = 0
        self.accessed_ns = [0]
        #: Transmissions to send.
        self._orders: list[Order] = []
        #: The numbers of leases, moves and holds.
        self._handles = count(1)
        self._digest = RollingDigest()

    # -- look-ups

    def _find(self, request: int, limit: int) -> list[Block]:
        """Return the leading blocks of a request that are in the tree, gone ones included."""
        found: list[Block] = []
        at: Block | None = self.root
        for key in self.keys.path(request, 0, limit):
            at = at.children.get(key) if at is not None else None
            if at is None:
                break
            found.append(at)
        return found

    def _found(self, request: int, limit: int) -> list[Block]:
        found = self._find(request, limit)
        return list(takewhile(lambda b: not b.is_gone, found)) if self.gone_blocks else found

    def _path(self, request: int, end: int) -> list[Block]:
        path = self._find(request, end)
        if len(path) < end:
            raise refused("blocks are not found", "a path of which every block is in the trie")
        return path

    def _end_of(self, path: list[Block], tier: int) -> Block:
        """Return the last block of a path, the root of an empty one; it must have a copy on the tier."""
        end = path[-1] if path else self.root
        if path and end.copies[tier].state == ABSENT:
            raise refused("a block is not on the tier", "a copy of every block there")
        return end

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many of the first ``limit`` blocks are found, and how many lead ready on the GPU."""
        found = self._found(request, limit)
        ready = sum(1 for _ in takewhile(lambda block: block.copies[GPU].state == READY, found))
        return len(found), ready

    def match_prefix(self, request: int, limit: int) -> list[Part]:
        """Return the found run in parts of one fastest tier and one move that writes it."""
        return _parts(0, [block.fastest for block in self._found(request, limit)])

    def match_below(self, request: int, start: int, limit: int) -> list[Part]:
        """Return the run from block ``start`` on that has copies below the GPU, in parts."""
        below: list[Copy] = []
        for block in self._found(request, limit)[start:]:
            copy = next((copy for copy in block.copies[GPU + 1 :] if copy.state != ABSENT), None)
            if copy is None:
                break
            below.append(copy)
        return _parts(start, below)

    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """Return of each found block (past it, copies).

        A copy is (tier, writing move, first layer ready, all ready, last access), times in nanoseconds,
        ``NOT_YET`` for one that is not known.
        """
        listed = []
        for block in self._found(request, limit):
            copies = []
            for copy in block.copies:
                if copy.state != ABSENT:
                    known = copy.ready if copy.state == READY else self.moves[copy.move].times
                    times = known or (NOT_YET, NOT_YET)
                    copies.append((copy.tier, copy.move, *times, self.accessed_ns[copy.last_access]))
            listed.append((block.depth + 1, copies))
        return listed

    def paths_in_use(self) -> Iterator[tuple[int, Block]]:
        """Yield (tier, last block) of each path that a lease, a hold or a move uses."""
        for lease in self.leases.values():
            yield GPU, lease.path[-1] if lease.path else self.root
        yield from self.holds.values()
        for move in self.moves.values():
            yield from move.holds

    def blocks(self) -> Iterator[Block]:
        """Yield every block of the tree, parents first: for checks and reports."""
        unseen = list(self.root.children.values())
        for block in unseen:
            yield block
            unseen.extend(block.children.values())

    # -- users

    def _hold(self, tier: int, end: Block) -> None:
        """Count a user of a path on a tier. Cost: the blocks that were not in use there."""
        block = end
        while block.parent is not None:
            copy = block.copies[tier]
            copy.ref_count += 1
            if copy.ref_count > 1:
                return
            self._review(block)
            block = block.parent

    def _unhold(self, tier: int, end: Block) -> None:
        block = end
        while block.parent is not None:
            copy = block.copies[tier]
            copy.ref_count -= 1
            if copy.ref_count:
                return
            self._review(block)
            block = block.parent

    # -- states

    def _add_block(self, parent: Block, key: int, request: int) -> Block:
        copies = [Copy(tier) for tier in range(len(self.tiers))]
        block = parent.children[key] = Block(key, parent.depth + 1, parent, request, copies)
        self.gone_blocks += 1
        return block

    def _remove_block(self, block: Block) -> None:
        assert block.parent is not None
        del block.parent.children[block.key]
        self.gone_blocks -= 1

    def _set_ready(self, block: Block, tier: int, times: Times) -> None:
        block.copies[tier].ready = times
        self._set_state(block, tier, READY)

    def _set_state(self, block: Block, tier: int, state: int, move: int = NO_MOVE) -> None:
        """Mark a copy absent, in flight by a move, or ready."""
        copy, before = block.copies[tier], block.copies[tier].state
        was_gone = before == ABSENT and block.is_gone
        copy.state, copy.move = state, move
        self.tiers[tier].cached += (state == READY) - (before == READY)
        if state == ABSENT:
            copy.ready = None
            self.orders[tier].on_absent(block)
            self.gone_blocks += block.is_gone
        else:
            self.gone_blocks -= was_gone
        self._review(block)
        if (state == ABSENT) != (before == ABSENT):
            self._count_child(block, tier, -1 if state == ABSENT else 1)

    def _count_child(self, block: Block, tier: int, change: int) -> None:
        parent = block.parent
        assert parent is not None
        copy = parent.copies[tier]
        copy.children += change
        if copy.evictable and not copy.children:
            self._offer(parent, tier)

    def _review(self, block: Block) -> None:
        """Bring up to date whether a block may leave each tier, but for its children."""
        for copy in block.copies:
            evictable = self._may_leave(block, copy)
            if evictable != copy.evictable:
                copy.evictable = evictable
                self.tiers[copy.tier].evictable += 1 if evictable else -1
                if evictable:
                    self._offer(block, copy.tier)

    def _may_leave(self, block: Block, copy: Copy) -> bool:
        if copy.state != READY or copy.ref_count:
            return False
        if copy.tier < len(self.tiers) - 1 or not block.is_in_use:
            return True
        return any(faster.state != ABSENT for faster in block.copies[: copy.tier])

    def _offer(self, block: Block, tier: int) -> None:
        self.orders[tier].offer(block, self.clock, self.now_ns)

    def _discard_if_gone(self, block: Block) -> None:
        """Remove a block without copies and all blocks below it, except those in use."""
        if not block.is_gone:
            return
        below = [block]
        for at in below:
            below.extend(at.children.values())
        for at in reversed(below):
            if at.is_in_use:
                continue
            for copy in at.copies:
                if copy.state == READY:
                    self._set_state(at, copy.tier, ABSENT)
                    self.tiers[copy.tier].free += 1
                    self.tiers[copy.tier].orphaned += 1
            self._remove_block(at)

    def _discard_unreachable(self, end: Block) -> None:
        """Discard what the end of a use has left without a copy on a path, and all below it."""
        gone = [block for block in end.path() if block.is_gone] if self.gone_blocks else []
        if gone:
            self._discard_if_gone(gone[-1])

    # -- times and records

    def _advance(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.latest_ns = max(self.latest_ns, now_ns)

    def _count_access(self) -> int:
        self.clock += 1
        self.accessed_ns.append(self.latest_ns)
        return self.clock

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""
        self._digest.record(kind, now_ns, subject, value)

    @property
    def digest(self) -> int:
        """The rolling hash of all records so far."""
        return self._digest.value

    def room(self, tier: int) -> Room:
        """Return how a tier's blocks are used."""
        t = self.tiers[tier]
        return Room(t.free, t.active, t.cached, t.in_flight, t.evictable)

    def losses(self, tier: int) -> Losses:
        """Return how many blocks a tier has lost so far."""
        t = self.tiers[tier]
        return Losses(t.evicted, t.overflowed, t.orphaned)

    def duplicates(self, tier: int) -> int:
        """Return how many blocks of a tier have a copy on a faster one too. Cost: all blocks."""
        return sum(b.copies[tier].state != ABSENT and b.fastest.tier < tier for b in self.blocks())


def _parts(start: int, copies: list[Copy]) -> list[Part]:
    parts: list[Part] = []
    for depth, copy in enumerate(copies, start):
        if parts and (parts[-1][0], parts[-1][3]) == (copy.tier, copy.move):
            parts[-1] = copy.tier, parts[-1][1], depth + 1, copy.move
        else:
            parts.append((copy.tier, depth, depth + 1, copy.move))
    return parts

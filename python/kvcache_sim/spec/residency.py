"""Residency: the copies of blocks on tiers, their users, and evictable blocks (seed 001; semantics 2).

The tree of blocks is the lookup structure of seed 001 (``KVBlockTrie``). A lookup walks a request's keys
from the root and finds the leading run of blocks that have a copy on any tier; it changes nothing.
``_set_state`` marks a copy present or absent with its times: seed 001's
``set_storage_layer_info_timestamps``. A block that is in use on a tier keeps its copy there. Otherwise a
ready copy may leave, with one exception: the last copy of a block that is in use on any other tier stays on
the slowest tier. A block leaves the tree with its last copy, and all its descendants with it, since no lookup
reaches them any more; a descendant in use stays until its last user has released it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, takewhile

from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.store import NO_MOVE, EvictionCounts, Occupancy, Order, Times
from kvcache_sim.spec.block_store import Found
from kvcache_sim.spec.blocks import ABSENT, GPU, READY, WAITING, Block, Copy, Hold, Lease, Move, Tier
from kvcache_sim.spec.eviction import EvictionOrder
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.records import RollingDigest

#: Blocks of a tier without bound.
UNBOUNDED = 1 << 60


def refused(what: str, expected: str) -> StoreError:
    """Return the error of an invalid call of the store."""
    return StoreError(what, "store", "", expected)


class Residency:
    """The tree of blocks over one tier or more, fast to slow: capacities (None: no bound) and orders."""

    def __init__(
        self, keys: Keys, capacities_blocks: Sequence[int | None], policies: Sequence[str] | None = None
    ) -> None:
        self.keys = keys
        sizes = [UNBOUNDED if blocks is None else blocks for blocks in capacities_blocks]
        self.tiers = [Tier(number, size, size) for number, size in enumerate(sizes)]
        self.eviction_orders = [
            EvictionOrder(n, policy) for n, policy in enumerate(policies or ["lru"] * len(sizes))
        ]
        #: In place of a tier: blocks in use by a backlog.
        self.backlog_tier = len(sizes)
        self.root = Block(-1, -1, None, -1, [Copy(tier) for tier in range(self.backlog_tier + 1)])
        self.leases: dict[int, Lease] = {}
        self.moves: dict[int, Move] = {}
        #: Times of the last eviction or release, and of the latest change; count of accesses; blocks merged.
        self.now_ns = self.latest_ns = self.clock = self.merged_blocks = 0
        #: Transmissions to send.
        self._transmissions: list[Order] = []
        #: The numbers of leases and moves.
        self._handles = count(1)
        self._digest = RollingDigest()

    # -- lookups

    def _find(self, request: int, limit: int) -> list[Block]:
        """Return the leading blocks of a request that are in the tree, blocks without a copy included."""
        found: list[Block] = []
        children = self.root.children
        for key in self.keys.path(request, 0, limit):
            block = children.get(key)
            if block is None:
                break
            found.append(block)
            children = block.children
        return found

    def _found(self, request: int, limit: int) -> list[Block]:
        found = takewhile(lambda block: block.present, self._find(request, limit))
        return list(takewhile(lambda block: block.fastest.state != WAITING, found))

    def _path(self, request: int, end: int, start: int = 0) -> list[Block]:
        path = self._find(request, end)
        if len(path) < end:
            raise refused("blocks are not found", "a path of which every block is in the trie")
        return path[start:]

    def _end_of(self, path: list[Block], tier: int) -> Block:
        """Return the last block of a path, the root of an empty path; it must have a copy on the tier."""
        end = path[-1] if path else self.root
        if path and end.copies[tier].state == ABSENT:
            raise refused("a block is not on the tier", "a copy of every block there")
        return end

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return the number of leading blocks found, at most ``limit``, and the number ready on the GPU."""
        found = self._found(request, limit)
        ready = sum(1 for _ in takewhile(lambda block: block.copies[GPU].state == READY, found))
        return len(found), ready

    def match_prefix(self, request: int, limit: int) -> list[Found]:
        """Return the found run in parts of one fastest tier and one move that writes it."""
        return _parts(0, [block.fastest for block in self._found(request, limit)])

    def match_below(self, request: int, start: int, limit: int) -> list[Found]:
        """Return the run from block ``start`` to at most ``limit`` with copies below the GPU, in parts."""
        below: list[Copy] = []
        for block in self._found(request, limit)[start:]:
            copy = next((copy for copy in block.copies[GPU + 1 :] if copy.state != ABSENT), None)
            if copy is None or copy.state == WAITING:
                break
            below.append(copy)
        return _parts(start, below)

    def paths_in_use(self) -> Iterator[Hold]:
        """Yield each path that a lease or a move uses."""
        for lease in self.leases.values():
            yield Hold(GPU, lease.path[-1] if lease.path else self.root)
        for move in self.moves.values():
            yield from move.holds
        for tier in self.tiers:
            for backlog in tier.backlogs:
                yield from (Hold(self.backlog_tier, block) for block in backlog.blocks)

    def blocks(self) -> Iterator[Block]:
        """Yield every block of the tree, parents first: for checks and reports."""
        unseen = list(self.root.children.values())
        for block in unseen:
            yield block
            unseen.extend(block.children.values())

    # -- users

    def _hold(self, tier: int, end: Block, users: int = 1) -> None:
        """Count a user of a path on a tier. Cost: the blocks whose use begins or ends."""
        block = end
        while block.parent is not None:
            copy = block.copies[tier]
            was_used, copy.ref_count = copy.ref_count, copy.ref_count + users
            if was_used and copy.ref_count:
                return
            self._review(block)
            block = block.parent

    def _unhold(self, tier: int, end: Block) -> None:
        self._hold(tier, end, -1)

    # -- states

    def _add_block(self, parent: Block, key: int, request: int) -> Block:
        copies = [Copy(tier) for tier in range(self.backlog_tier + 1)]
        block = parent.children[key] = Block(key, parent.depth + 1, parent, request, copies)
        return block

    def _set_state(
        self, block: Block, tier: int, state: int, move: int = NO_MOVE, times: Times | None = None
    ) -> None:
        """Mark a copy absent, in flight by a move, or ready at ``times``."""
        copy, parent = block.copies[tier], block.parent
        came = (state > WAITING) - (copy.state > WAITING)
        block.present += (state != ABSENT) - (copy.state != ABSENT)
        self.tiers[tier].cached += (state == READY) - (copy.state == READY)
        copy.state, copy.move, copy.ready = state, move, times
        if state == ABSENT:
            self.eviction_orders[tier].on_absent(block)
        self._review(block)
        if came:
            assert parent is not None
            above = parent.copies[tier]
            above.children += came
            if above.evictable and not above.children:
                self._offer(parent, tier)

    def _free_copy(self, block: Block, tier: int) -> None:
        self._set_state(block, tier, ABSENT)
        self.tiers[tier].free += 1

    def _review(self, block: Block) -> None:
        """Update ``evictable`` of a block's copies: True if only children keep a copy."""
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
        return copy.tier < len(self.tiers) - 1 or block.present > 1 or not block.is_in_use

    def _offer(self, block: Block, tier: int) -> None:
        self.eviction_orders[tier].offer(block, self.clock, self.now_ns)

    def _discard_if_gone(self, block: Block) -> None:
        """Remove a block without copies and its descendants, except blocks in use."""
        below = [] if block.present else [block]
        for at in below:
            below.extend(at.children.values())
        for at in reversed(below):
            if at.is_in_use:
                continue
            for copy in at.copies:
                if copy.state == READY:
                    self._free_copy(at, copy.tier)
                    self.tiers[copy.tier].orphaned += 1
            assert at.parent is not None
            del at.parent.children[at.key]

    def _end_use(self, tier: int, end: Block) -> None:
        """Remove a user; discard the blocks of the path left without a copy, and their descendants."""
        self._unhold(tier, end)
        self._discard_unreachable(end)

    def _discard_unreachable(self, end: Block) -> None:
        gone = [block for block in end.path() if not block.present]
        if gone:
            self._discard_if_gone(gone[-1])

    # -- times and records

    def _advance(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.latest_ns = max(self.latest_ns, now_ns)

    def _count_access(self) -> int:
        self.clock += 1
        return self.clock

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""
        self._digest.record(kind, now_ns, subject, value)

    @property
    def digest(self) -> int:
        """The rolling hash of all records so far."""
        return self._digest.value

    def occupancy(self, tier: int) -> Occupancy:
        """Return the use of a tier's blocks."""
        t = self.tiers[tier]
        return Occupancy(t.free, t.active + t.cached - t.evictable, t.evictable, t.in_flight, t.active)

    def eviction_counts(self, tier: int) -> EvictionCounts:
        """Return the blocks that have left a tier so far."""
        t = self.tiers[tier]
        return EvictionCounts(t.evicted, t.overflowed, t.orphaned)

    def duplicates(self, tier: int) -> int:
        """Return the number of a tier's blocks with a copy on a faster tier too. Cost: all blocks."""
        return sum(b.copies[tier].state != ABSENT and b.fastest.tier < tier for b in self.blocks())


def _parts(start: int, copies: list[Copy]) -> list[Found]:
    parts: list[Found] = []
    for depth, copy in enumerate(copies, start):
        if parts and (parts[-1].tier, parts[-1].by) == (copy.tier, copy.move):
            parts[-1] = parts[-1]._replace(end=depth + 1)
        else:
            parts.append(Found(copy.tier, depth, depth + 1, copy.move))
    return parts

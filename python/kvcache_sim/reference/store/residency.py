"""Which blocks are where and who holds them: look-ups and counts."""

from __future__ import annotations

from itertools import takewhile

from kvcache_sim.cache.settings import Touch
from kvcache_sim.cache.store import NO_MOVE, Losses, Order
from kvcache_sim.channels.channel import NOT_YET
from kvcache_sim.reference.policies.block import Block as Facts
from kvcache_sim.reference.records import Recorded
from kvcache_sim.reference.store.blocks import ABSENT, GPU, IN_FLIGHT, READY, Block, Lease, Move, Tier
from kvcache_sim.reference.store.keys import ReferenceKeys
from kvcache_sim.reference.store.orders import TierOrder
from kvcache_sim.reference.store.refusals import numbered, refuse

_UNBOUNDED = 1 << 60


class Residency(Recorded):
    """The blocks of one tier or more. Every question is answered by looking at all blocks."""

    def __init__(
        self,
        keys: ReferenceKeys,
        capacities: list[int | None],
        write_back: list[bool],
        touched_at: Touch = "release",
        eviction: list[TierOrder | None] | None = None,
        eviction_batch_blocks: int = 1,
    ) -> None:
        super().__init__()
        self.touched_at = touched_at
        self.keys = keys
        sizes = [_UNBOUNDED if c is None else c for c in capacities]
        self.tiers = [Tier(c, c, back) for c, back in zip(sizes, write_back, strict=True)]
        self.root = Block(-1, -1, None, len(capacities))
        self.resident: list[dict[Block, None]] = [{} for _ in capacities]
        self.leases: dict[int, Lease] = {}
        self.moves: dict[int, Move] = {}
        #: Paths protected for a moment: (tier, last block).
        self.holds: dict[int, tuple[int, Block]] = {}
        #: By tier: who leaves first, where that is not the least recent.
        self.eviction: list[TierOrder | None] = eviction or [None] * len(capacities)
        #: Where room is made, so many blocks are evicted at once at least.
        self.eviction_batch_blocks = eviction_batch_blocks
        self.now_ns = 0
        #: The latest time that was told, and when each count of ``clock`` was made.
        self.latest_ns = 0
        self.accessed_ns = {0: 0}
        self._numbers: dict[tuple[int, int], int] = {}
        self.orders: list[Order] = []
        self.clock = 0
        self.merged_blocks = 0

    def _add(self, parent: Block, request: int, depth: int) -> Block:
        key = self.keys.key(request, depth)
        block = parent.children[key] = Block(key, depth, parent, len(self.tiers), request)
        block.number = self._numbers.setdefault((parent.number, key), len(self._numbers))
        return block

    def _find(self, request: int, limit: int) -> list[Block]:
        found: list[Block] = []
        at = self.root
        for depth in range(limit):
            child = at.children.get(self.keys.key(request, depth))
            if child is None:
                break
            found.append(child)
            at = child
        return found

    def _found(self, request: int, limit: int) -> list[Block]:
        """Return the leading run that has copies: what is kept only for a reader below is not found."""
        return list(takewhile(lambda block: not block.gone(), self._find(request, limit)))

    def _at(self, request: int, depth: int) -> Block:
        blocks = self._path(request, depth)
        return blocks[-1] if blocks else self.root

    def _path(self, request: int, end: int) -> list[Block]:
        """Return the first blocks of a request, all of which are in the trie."""
        self._known_request(request)
        blocks = self._find(request, min(end, 1 << 32))
        if len(blocks) < end:
            raise refuse("blocks are not found", "a path of which every block is in the trie")
        return blocks

    def _part(self, request: int, start: int, end: int) -> list[Block]:
        if start >= end:
            raise refuse("no blocks", "a first block before the end")
        return self._path(request, end)[start:]

    def _known_request(self, request: int) -> None:
        requests = len(self.keys.full)
        if request >= requests:
            raise refuse("no such request", f"0 to {requests - 1}")

    def _known_tier(self, tier: int) -> None:
        if tier >= len(self.tiers):
            raise refuse("no such tier", f"0 to {len(self.tiers) - 1}")

    def _there(self, block: Block, tier: int) -> None:
        if block is not self.root and block.state[tier] == ABSENT:
            raise refuse("a block is not on the tier", "a copy of every block there")

    def _lease(self, lease: int) -> Lease:
        if lease not in self.leases or not self.leases[lease].live:
            raise refuse("no such lease", "one that is held")
        return self.leases[lease]

    def _under_way(self, move: int) -> Move:
        if move not in self.moves:
            raise refuse("no such move", "one that is under way")
        return self.moves[move]

    @numbered
    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many blocks are found, and how many are ready on the GPU."""
        self._known_request(request)
        found = self._found(request, limit)
        ready = 0
        while ready < len(found) and found[ready].state[GPU] == READY:
            ready += 1
        return len(found), ready

    @numbered
    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the block, holders, access on the fastest tier) of each found block."""
        self._known_request(request)
        parts = []
        for depth, block in enumerate(self._found(request, limit)):
            tier = next(t for t in range(len(self.tiers)) if block.state[t] != ABSENT)
            parts.append((depth + 1, sum(block.holds), block.access[tier]))
        return parts

    @numbered
    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """Return (past the block, copies) of each found block.

        A copy is (tier, move writing it, first layer ready, all ready, last access).
        """
        self._known_request(request)
        listed = []
        for depth, block in enumerate(self._found(request, limit)):
            copies = []
            for tier, state in enumerate(block.state):
                if state != ABSENT:
                    by = block.by[tier] if state == IN_FLIGHT else NO_MOVE
                    known = self.moves[by].times if state == IN_FLIGHT else block.ready[tier]
                    times = known or (NOT_YET, NOT_YET)
                    copies.append((tier, by, *times, self.accessed_ns[block.access[tier]]))
            listed.append((depth + 1, copies))
        return listed

    @numbered
    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts by fastest tier and move."""
        self._known_request(request)
        parts: list[tuple[int, int, int, int]] = []
        for depth, block in enumerate(self._found(request, limit)):
            tier = next(t for t in range(len(self.tiers)) if block.state[t] != ABSENT)
            by = block.by[tier] if block.state[tier] == IN_FLIGHT else NO_MOVE
            if parts and parts[-1][0] == tier and parts[-1][3] == by:
                parts[-1] = (tier, parts[-1][1], depth + 1, by)
            else:
                parts.append((tier, depth, depth + 1, by))
        return parts

    @numbered
    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the run from block ``start`` on that is found below the GPU, in parts."""
        self._known_request(request)
        parts: list[tuple[int, int, int, int]] = []
        for depth, block in list(enumerate(self._found(request, limit)))[start:]:
            tier = next((t for t in range(1, len(self.tiers)) if block.state[t] != ABSENT), None)
            if tier is None:
                break
            by = block.by[tier] if block.state[tier] == IN_FLIGHT else NO_MOVE
            if parts and parts[-1][0] == tier and parts[-1][3] == by:
                parts[-1] = (tier, parts[-1][1], depth + 1, by)
            else:
                parts.append((tier, depth, depth + 1, by))
        return parts

    def _tick(self) -> int:
        """Count an access, at the latest time that was told."""
        self.clock += 1
        self.accessed_ns[self.clock] = self.latest_ns
        return self.clock

    def _told(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.latest_ns = max(self.latest_ns, now_ns)

    def _hold(self, tier: int, block: Block, times: int = 1) -> None:
        for b in block.path():
            b.holds[tier] += times
            self._refresh(b)

    def _pinned(self, block: Block) -> bool:
        return any(block.holds)

    def _set(self, block: Block, tier: int, state: int, by: int = NO_MOVE) -> None:
        block.state[tier], block.by[tier] = state, by
        order = self.eviction[tier]
        if state == ABSENT:
            self.resident[tier].pop(block, None)
            block.ready[tier] = None
            if order is not None and block.number in order.known:
                order.leave(block)
        else:
            self.resident[tier][block] = None
        self._refresh(block)

    def _refresh(self, block: Block) -> None:
        """Let a block that may leave join its tier's order, if no request's release has done so."""
        for tier, order in enumerate(self.eviction):
            if order is not None and block.number not in order.known and self._may_go(block, tier):
                self._join(order, block, tier, (block.depth, 1))

    def _join(self, order: TierOrder, block: Block, tier: int, found_and_computed: tuple[int, int]) -> None:
        times = (block.access[tier], self.clock, self.now_ns)
        order.join(block, Facts(block.number, block.depth, 1, *times, *found_and_computed, block.number + 1))

    def _released(self, block: Block, found_and_computed: tuple[int, int]) -> None:
        """Tell the orders that a request let go of a block: it joins, or has been used."""
        for tier, order in enumerate(self.eviction):
            if order is None or block.state[tier] != READY:
                continue
            if block.number in order.known:
                order.used(block, self.clock, self.now_ns)
            else:
                self._join(order, block, tier, found_and_computed)

    def _may_go(self, block: Block, tier: int) -> bool:
        """Return whether nothing but the blocks after it keeps a block on a tier."""
        if block.state[tier] != READY or block.holds[tier]:
            return False
        if tier < len(self.tiers) - 1 or not self._pinned(block):
            return True
        return any(block.state[t] != ABSENT for t in range(tier))

    def _cached(self, tier: int) -> int:
        return sum(b.state[tier] == READY for b in self.resident[tier])

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return how many blocks a tier has lost so far."""
        self._known_tier(tier)
        t = self.tiers[tier]
        return Losses(t.evicted, t.overflowed, t.orphaned)

    @numbered
    def duplicates(self, tier: int) -> int:
        """Return how many blocks of a tier have a copy on a faster one too."""
        self._known_tier(tier)
        return sum(any(b.state[t] != ABSENT for t in range(tier)) for b in self.resident[tier])

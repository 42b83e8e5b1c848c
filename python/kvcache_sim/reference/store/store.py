"""The whole store: the reference's tiers, leases and moves, and the reads of other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.reference.store.blocks import GPU, IN_FLIGHT, REMOTE, Block, Move
from kvcache_sim.reference.store.check import violations
from kvcache_sim.reference.store.marks import Marks
from kvcache_sim.reference.store.refusals import numbered, refuse


class ReferenceStore(Marks):
    """A ``MarkingStore`` that can be read in one sitting. Cost: linear in the resident blocks, every call."""

    @numbered
    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold a path on a tier until the returned move is finished."""
        self._known_tier(tier)
        tail = self._at(request, end)
        self._there(tail, tier)
        self._hold(tier, tail)
        return self._new_move(Move(tier, [], None, [(tier, tail)]))

    @numbered
    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Land blocks of another machine on the CPU, room made there first."""
        self._known_tier(GPU + 1)
        start, end = part
        if start >= end:
            raise refuse("no blocks", "a first block before the end")
        parent = self._at(request, start)
        if self.keys.key(request, start) in parent.children:
            return None
        self._hold(GPU + 1, parent)
        room = self._make_room(GPU + 1, end - start, now_ns)
        self._hold(GPU + 1, parent, -1)
        if room is None:
            return None
        self.tiers[GPU + 1].in_flight += end - start
        blocks: list[Block] = []
        for depth in range(start, end):
            block = self._add(parent, request, depth)
            blocks.append(block)
            parent = block
        move = self._new_move(Move(GPU + 1, blocks, held=[parent]))
        access = self._tick()
        for block in blocks:
            block.access[GPU + 1] = access
            self._set(block, GPU + 1, IN_FLIGHT, move)
        self._hold(GPU + 1, parent)
        self.orders.append((move, REMOTE, GPU + 1, len(blocks), [m for m, _ in room]))
        return move

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""
        for broken in violations(self):
            raise RuntimeError(broken)


if TYPE_CHECKING:

    def _fulfils(store: ReferenceStore) -> MarkingStore:
        return store

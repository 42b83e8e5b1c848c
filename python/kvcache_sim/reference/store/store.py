"""The whole store: the twin's tiers, leases and moves, and the reads of other machines."""

from __future__ import annotations

from kvcache_sim.reference.store.blocks import ABSENT, GPU, IN_FLIGHT, Block, Move
from kvcache_sim.reference.store.marks import Marks


class ReferenceStore(Marks):
    """A ``BlockStore`` that can be read in one sitting. Cost: linear in the resident blocks, every call."""

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold a path on a tier until the returned move is finished."""
        tail = self._at(request, end)
        self._hold(tier, tail)
        return self._new_move(Move(tier, [], None, [(tier, tail)]))

    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Land blocks of another machine on the CPU, room made there first."""
        start, end = part
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
            key = self.keys.key(request, depth)
            block = self._add(parent, key, depth)
            blocks.append(block)
            parent = block
        move = self._new_move(Move(GPU + 1, blocks, held=[parent]))
        self.clock += 1
        for block in blocks:
            block.access[GPU + 1] = self.clock
            self._set(block, GPU + 1, IN_FLIGHT, move)
        self._hold(GPU + 1, parent)
        self.orders.append((move, 3, GPU + 1, len(blocks), [m for m, _ in room]))
        return move

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""
        for number, tier in enumerate(self.tiers):
            used = tier.free + tier.active + self._cached(number) + tier.in_flight
            if used != tier.capacity:
                raise RuntimeError(f"I2: tier {number} accounts for {used} of {tier.capacity} blocks")
        for block in self.resident[GPU]:
            parent = block.parent
            if parent is not self.root and (parent is None or parent.state[GPU] == ABSENT):
                raise RuntimeError(f"I4: block {block.key} is on the gpu, its parent is not")

"""Space on a tier: free blocks, then blocks that writes free, then evictions (semantics 2).

``_acquire_space`` is seed 001's ``synced_acquire_space`` and ``_evict`` its ``_evict_blocks``. A reservation
that free, coming and evictable blocks cannot cover is refused and changes nothing. Otherwise exactly the
shortfall is evicted. On the slowest tier a victim is discarded and its block
is free at once. On a faster tier a victim without a copy below is written there first: one move for the
batch, after space has been made below in the same way. A victim that has its copy below frees its block at
once; one whose copy below is in flight frees it when that move ends. From the decision on, a victim is not
found above and is found, not ready, below. Victims that the tier below cannot store are dropped, in eviction
order, and counted as overflow. A space of (move, blocks) pairs has the blocks that are free after a move.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.spec.blocks import ABSENT, IN_FLIGHT, READY, REMOTE, Block, Late, Move, Order
from kvcache_sim.spec.residency import Residency


class Space(Residency):
    """Makes space by evicting leaves; victims are written to the tier below."""

    def take_orders(self) -> list[Order]:
        """Return the transmissions decided since the last call."""
        taken, self._orders = self._orders, []
        return taken

    def _start(self, move: Move, source: int, after: Iterable[int]) -> int:
        """Order a move, mark its blocks in flight, as recent as at their source, and return its handle."""
        handle = next(self._handles)
        self.moves[handle] = move
        self._orders.append((handle, source, move.to, len(move.blocks), list(dict.fromkeys(after))))
        if move.lease is None:
            self.tiers[move.to].in_flight += len(move.blocks)
        came = self._count_access() if source == REMOTE else 0
        for block in move.blocks:
            block.copies[move.to].last_access = came or block.copies[source].last_access
            self._set_state(block, move.to, IN_FLIGHT, handle)
        return handle

    def _acquire_space(self, tier: int, blocks: int, now_ns: int) -> Late | None:
        """Take blocks from a tier; return the blocks that are free later, None if refused."""
        space = self.tiers[tier]
        if space.available < blocks:
            return None
        self._advance(now_ns)
        lacking = max(blocks - space.free, 0)
        shortfall = max(lacking - sum(n for _, n in space.coming), 0)
        freed = self._evict(tier, shortfall, now_ns) if shortfall else 0
        late = min(lacking - min(shortfall, freed), sum(n for _, n in space.coming))
        if space.free + late < blocks:
            return None
        space.free -= blocks - late
        space.in_flight -= late
        return _take_first(space.coming, late)

    def _evict(self, tier: int, wanted: int, now_ns: int) -> int:
        """Evict ``wanted`` blocks, or all evictable if fewer; return the number free now."""
        if tier < len(self.tiers) - 1:
            return self._demote(tier, wanted, now_ns)
        evicted = 0
        while evicted < wanted and (block := self.orders[tier].next_victim(now_ns)) is not None:
            self._discard_last_copy(tier, block, now_ns)
            evicted += 1
        return evicted

    def _discard_last_copy(self, tier: int, block: Block, now_ns: int) -> None:
        """Evict from the slowest tier (seed 001, ``evict_to_discard``)."""
        self._delete_copy(tier, block, now_ns)
        self.tiers[tier].free += 1
        self._discard_if_gone(block)

    def _delete_copy(self, tier: int, block: Block, now_ns: int) -> None:
        self.tiers[tier].evicted += 1
        self._digest.evicted(tier, block.key, now_ns)
        self._set_state(block, tier, ABSENT)

    def _demote(self, tier: int, wanted: int, now_ns: int) -> int:
        """Evict from a tier with another below (seed 001, ``evict_to_lower_location``)."""
        space, below = self.tiers[tier], tier + 1
        late: Late = []
        unwritten: list[Block] = []
        evicted = 0
        while evicted < wanted and (block := self.orders[tier].next_victim(now_ns)) is not None:
            copy_below = block.copies[below]
            if copy_below.state == ABSENT:
                self._hold(below, block)
                unwritten.append(block)
            elif copy_below.state == READY:
                space.free += 1
            else:
                late.append((copy_below.move, 1))
            self._delete_copy(tier, block, now_ns)
            evicted += 1
        late += self._write_below(tier, unwritten, now_ns)
        late_blocks = sum(n for _, n in late)
        space.in_flight += late_blocks
        space.coming += late
        return evicted - late_blocks

    def _write_below(self, tier: int, victims: list[Block], now_ns: int) -> Late:
        """Write victims as far as the tier below can store them; drop the rest, first in eviction order."""
        below = tier + 1
        dropped = max(len(victims) - self.tiers[below].available, 0)
        for block in victims[:dropped]:
            self._drop(tier, block)
        written = victims[dropped:]
        space = self._acquire_space(below, len(written), now_ns) if written else None
        if space is None:
            for block in written:
                self._drop(tier, block)
            return []
        move = Move(below, written, holds=[(below, block) for block in written])
        return [(self._start(move, tier, (after for after, _ in space)), len(written))]

    def _drop(self, tier: int, block: Block) -> None:
        """Drop a victim that the tier below cannot store."""
        self._unhold(tier + 1, block)
        self.tiers[tier].free += 1
        self.tiers[tier].overflowed += 1
        self._discard_if_gone(block)
        if block.parent is not None:  # its parent may have no copy already, kept only for this block
            self._discard_unreachable(block.parent)

    def expire(self, now_ns: int) -> None:
        """Discard the copies whose tier's time to live has passed."""
        self._advance(now_ns)
        for tier, order in enumerate(self.orders):
            while (block := order.next_lapsed(now_ns)) is not None:
                self._discard_last_copy(tier, block, now_ns)


def _take_first(coming: Late, blocks: int) -> Late:
    """Take ``blocks`` blocks from the earliest moves."""
    taken: Late = []
    while blocks:
        move, there = coming[0]
        part = min(there, blocks)
        taken.append((move, part))
        blocks -= part
        coming[:1] = [(move, there - part)] if there > part else []
    return taken

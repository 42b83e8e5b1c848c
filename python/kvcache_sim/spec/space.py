"""Space on a tier: free blocks, then blocks that writes free, then evictions (semantics 2).

``_acquire_space`` is seed 001's ``synced_acquire_space`` and ``_evict`` its ``_evict_blocks``. A reservation
that free, coming and evictable blocks cannot cover is refused and changes nothing. Otherwise exactly the
shortfall is evicted. On the slowest tier a victim is discarded and its block is free at once. On a faster
tier a victim without a copy below is written there first: one move for the batch, after space has been made
below in the same way. A victim that has its copy below frees its block at once; one whose copy below is in
flight frees it when that move ends. From the decision on, a victim is not found above and is found, not
ready, below. The list of ``Freed`` of a space has the blocks that are free after a move.

Victims that the tier below cannot store now are its backlog: as much as fits is written at once, the rest in
further batches, in eviction order, as blocks there become free or evictable. One move stands for the backlog
until its last batch is written. A backlog is dropped, and counted as overflow, if its tier's other moves all
wait for backlogs too, as the loads of its own reservation do: nothing else can make space. So no lookup finds
what waits, or a reader could wait for what never comes. Under ``drop`` what does not fit is dropped, first in
eviction order.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.cache.store import Order
from kvcache_sim.spec.blocks import (
    ABSENT,
    IN_FLIGHT,
    READY,
    REMOTE,
    WAITING,
    Backlog,
    Block,
    Freed,
    Hold,
    Move,
)
from kvcache_sim.spec.residency import Residency


class Space(Residency):
    """Makes space by evicting leaves; victims are written to the tier below."""

    #: False: victims that the tier below cannot store now are dropped.
    overflow_waits = True
    #: False: loads wait for steps themselves (read buffers).
    waits_for_loads = True

    def take_orders(self) -> list[Order]:
        """Return the transmissions decided since the last call; write and drop what waits."""
        while any(tier.backlogs for tier in self.tiers):
            for tier in reversed(range(len(self.tiers))):
                self._write_backlogs(tier)
            if not self._drop_stuck():
                break
        taken, self._transmissions = self._transmissions, []
        return taken

    def _start(self, move: Move, source: int, after: Iterable[int], handle: int | None = None) -> int:
        """Order a move, mark its blocks in flight, as recent as at their source, and return its handle."""
        handle = handle or next(self._handles)
        self.moves[handle], move.after = move, list(dict.fromkeys(after))
        self._transmissions.append(Order(handle, source, move.to, len(move.blocks), move.after))
        if move.lease is None:
            self.tiers[move.to].in_flight += len(move.blocks)
        came = self._count_access() if source == REMOTE else 0
        for block in move.blocks:
            if block.copies[move.to].state != WAITING:
                block.copies[move.to].last_access = came or block.copies[source].last_access
            self._set_state(block, move.to, IN_FLIGHT, handle)
        return handle

    def _acquire_space(self, tier: int, blocks: int, now_ns: int) -> list[Freed] | None:
        """Take blocks from a tier; return the blocks that are free later, None if refused."""
        space = self.tiers[tier]
        if space.available < blocks:
            return None
        self._advance(now_ns)
        lacking = max(blocks - space.free, 0)
        shortfall = max(lacking - sum(freed.blocks for freed in space.coming), 0)
        freed = self._evict(tier, shortfall, now_ns) if shortfall else 0
        late = min(lacking - min(shortfall, freed), sum(freed.blocks for freed in space.coming))
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
        while evicted < wanted and (block := self.eviction_orders[tier].next_victim(now_ns)) is not None:
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
        late: list[Freed] = []
        unwritten: list[Block] = []
        evicted = 0
        while evicted < wanted and (block := self.eviction_orders[tier].next_victim(now_ns)) is not None:
            copy_below = block.copies[below]
            if copy_below.state == ABSENT:
                self._hold(below, block)
                unwritten.append(block)
            elif copy_below.state == READY:
                space.free += 1
            else:
                late.append(Freed(copy_below.move, 1))
            self._delete_copy(tier, block, now_ns)
            evicted += 1
        late += self._write_below(tier, unwritten, now_ns)
        late_blocks = sum(freed.blocks for freed in late)
        space.in_flight += late_blocks
        space.coming += late
        return evicted - late_blocks

    def _write_below(self, tier: int, victims: list[Block], now_ns: int) -> list[Freed]:
        """Write victims to the tier below; what it cannot store waits, or is dropped."""
        below, target = tier + 1, self.tiers[tier + 1]
        dropped = max(len(victims) - target.available, 0)
        if self.overflow_waits and victims and (dropped or target.backlogs):
            return [Freed(self._wait_below(tier, victims), len(victims))]
        for block in victims[:dropped]:
            self._drop(tier, block)
        written = victims[dropped:]
        space = self._acquire_space(below, len(written), now_ns) if written else None
        if space is None:
            for block in written:
                self._drop(tier, block)
            return []
        move = Move(below, written, holds=[Hold(below, block) for block in written])
        return [Freed(self._start(move, tier, (freed.move for freed in space)), len(written))]

    def _drop(self, tier: int, block: Block) -> None:
        """Drop a victim that the tier below cannot store."""
        self._unhold(tier + 1, block)
        self.tiers[tier].free += 1
        self.tiers[tier].overflowed += 1
        self._discard_if_gone(block)
        if block.parent is not None:  # its parent may have no copy already, kept only for this block
            self._discard_unreachable(block.parent)

    # -- backlogs

    def _wait_below(self, tier: int, victims: list[Block]) -> int:
        """Append victims to the backlogs of the tier below; return the move that stands for them."""
        below, handle = tier + 1, next(self._handles)
        for block in victims:
            self._hold(self.backlog_tier, block)
            self._unhold(below, block)
            block.copies[below].last_access = block.copies[tier].last_access
            self._set_state(block, below, WAITING, handle)
        self.tiers[below].backlogs.append(Backlog(handle, victims))
        self._start(Move(below, []), tier, [handle], handle)
        self._write_backlogs(below)
        return handle

    def _write_backlogs(self, tier: int) -> None:
        """Write as much of a tier's backlogs as it can store now, each in one batch."""
        while (backlogs := self.tiers[tier].backlogs) and (available := self.tiers[tier].available):
            backlog, fits = backlogs[0], min(len(backlogs[0].blocks), available)
            freed = self._acquire_space(tier, fits, self.latest_ns)
            if freed is None:
                return
            batch, backlog.blocks = backlog.blocks[:fits], backlog.blocks[fits:]
            for block in batch:
                self._hold(tier, block)
                self._unhold(self.backlog_tier, block)
            after = [one.move for one in freed]
            if backlog.blocks:
                move = Move(tier, batch, holds=[Hold(tier, block) for block in batch])
                backlog.batches.append(self._start(move, tier - 1, after))
            else:
                self._end_backlog(tier, batch, after)

    def _end_backlog(self, tier: int, batch: list[Block], after: list[int]) -> None:
        """Write the last batch of a tier's first backlog, after the earlier ones."""
        backlog = self.tiers[tier].backlogs.pop(0)
        move = self.moves[backlog.move]
        move.blocks, move.holds = batch, [Hold(tier, block) for block in batch]
        self._start(move, tier - 1, after + backlog.batches, backlog.move)

    def _drop_stuck(self) -> bool:
        """Drop the first backlog whose tier no move will make space on; return True if there is one."""
        advancing: set[int] = set()
        while more := {m for m in self.moves if m not in advancing and self._advances(m, advancing)}:
            advancing |= more
        for tier in reversed(range(len(self.tiers))):
            backlogs = self.tiers[tier].backlogs
            if backlogs and backlogs[0].move not in advancing:
                for block in (dropped := backlogs[0].blocks):
                    self._set_state(block, tier, ABSENT)
                    self._end_use(self.backlog_tier, block)
                self.tiers[tier - 1].overflowed += len(dropped)
                self._end_backlog(tier, [], [])
                return True
        return False

    def _advances(self, handle: int, others: set[int]) -> bool:
        """Return True if a move needs no move but ``others`` to end: no reader elsewhere, and no step."""
        move = self.moves[handle]
        if move.after == [handle]:  # its backlog waits for space
            used = ({self.moves[other].to, *dict(self.moves[other].holds)} for other in others)
            return any(move.to in tiers for tiers in used)
        if (not move.blocks and move.holds) or (move.lease is not None and not self.waits_for_loads):
            return False
        return all(before in others or before not in self.moves for before in move.after)

    def expire(self, now_ns: int) -> None:
        """Discard the copies whose tier's time to live has passed."""
        self._advance(now_ns)
        for tier, order in enumerate(self.eviction_orders):
            while (block := order.next_lapsed(now_ns)) is not None:
                self._discard_last_copy(tier, block, now_ns)


def _take_first(coming: list[Freed], blocks: int) -> list[Freed]:
    """Take ``blocks`` blocks from the earliest moves."""
    taken: list[Freed] = []
    while blocks:
        move, there = coming[0]
        part = min(there, blocks)
        taken.append(Freed(move, part))
        blocks -= part
        coming[:1] = [Freed(move, there - part)] if there > part else []
    return taken

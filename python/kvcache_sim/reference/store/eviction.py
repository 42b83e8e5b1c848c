"""Room on a tier: who may go, in which order, and where to (semantics 2)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kvcache_sim.cache.digest import EVICT
from kvcache_sim.cache.store import Room
from kvcache_sim.reference.store.blocks import ABSENT, IN_FLIGHT, READY, Block, Move
from kvcache_sim.reference.store.orders import Standing
from kvcache_sim.reference.store.refusals import HANDLES, numbered
from kvcache_sim.reference.store.residency import Residency


def blocks_of(room: list[tuple[int, int]]) -> int:
    """Return the blocks of room that is free when moves end."""
    return sum(blocks for _, blocks in room)


def _parted(room: list[tuple[int, int]], blocks: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return so many blocks of some room, of what comes first, and the rest."""
    each = [(move, 1) for move, n in room for _ in range(n)]
    return each[:blocks], each[blocks:]


class Eviction(Residency):
    """Makes room by evicting leaves, oldest access first, deepest first; what goes is written below."""

    def _is_leaf(self, block: Block, tier: int) -> bool:
        return all(child.state[tier] == ABSENT for child in block.children.values())

    def _evictable(self, tier: int) -> int:
        return sum(self._may_go(b, tier) for b in self.resident[tier])

    @numbered
    def room(self, tier: int) -> Room:
        """Return how a tier's blocks are used."""
        self._known_tier(tier)
        t = self.tiers[tier]
        return Room(t.free, t.active, self._cached(tier), t.in_flight, self._evictable(tier))

    def _select(self, tier: int, blocks: int) -> list[Block]:
        """Return the next victims in eviction order: leaves, oldest access first, deepest first."""

        def leaf(block: Block) -> bool:
            left = (c for c in block.children.values() if c not in chosen)
            return self._may_go(block, tier) and all(c.state[tier] == ABSENT for c in left)

        chosen: dict[Block, None] = {}
        heap = [(b.access[tier], -b.depth, b.key, b) for b in self.resident[tier] if leaf(b)]
        heapq.heapify(heap)
        while heap and len(chosen) < blocks:
            block = heapq.heappop(heap)[3]
            chosen[block] = None
            parent = block.parent
            assert parent is not None
            if parent is not self.root and leaf(parent):
                heapq.heappush(heap, (parent.access[tier], -parent.depth, parent.key, parent))
        return list(chosen)

    def _available(self, tier: int) -> int:
        room = self.tiers[tier]
        return room.free + blocks_of(room.coming) + self._evictable(tier)

    def _make_room(self, tier: int, blocks: int, now_ns: int) -> list[tuple[int, int]] | None:
        """Take room: what is free, then what is coming free, then what the shortfall's eviction frees."""
        if self._available(tier) < blocks:
            return None
        self._told(now_ns)
        room = self.tiers[tier]
        lacking = max(blocks - room.free, 0)
        shortfall = max(lacking - blocks_of(room.coming), 0)
        freed = self._evict(tier, shortfall, now_ns) if shortfall else 0
        if freed is None:
            return None
        late = min(lacking - min(shortfall, freed), blocks_of(room.coming))
        if room.free + late < blocks:
            return None
        room.free -= blocks - late
        room.in_flight -= late
        taken, room.coming = _parted(room.coming, late)
        return taken

    def _evict(self, tier: int, shortfall: int, now_ns: int) -> int | None:
        """Evict a shortfall, or a batch where that is more; return how many blocks of it are free now."""
        room = self.tiers[tier]
        victims = self._select(tier, max(shortfall, self.eviction_batch_blocks))
        if tier == len(self.tiers) - 1:
            for block in self._one_by_one(tier, victims):
                self._take_off(tier, block, now_ns)
                room.free += 1
                self._discard_if_gone(block)
            return len(victims)
        if len(victims) < shortfall:
            return None
        pending = self._demote(tier, victims, now_ns)
        room.in_flight += blocks_of(pending)
        room.coming += pending
        return len(victims) - blocks_of(pending)

    def _one_by_one(self, tier: int, least_recent: list[Block]) -> Iterator[Block]:
        """Yield as many victims as were found by recency; each leaves before the next is asked for."""
        order = self.eviction[tier]
        for n, block in enumerate(least_recent):
            if order is None:
                yield block
                continue
            wanted = len(least_recent) - n
            named = order.victim(wanted, self.now_ns, self._standing(tier))
            yield self._select(tier, 1)[0] if named is None else named

    def _standing(self, tier: int) -> Standing:
        return lambda block: (self._may_go(block, tier), self._is_leaf(block, tier))

    @numbered
    def expire(self, now_ns: int) -> None:
        """Discard what its tier's policy keeps no longer."""
        self._told(now_ns)
        for tier, order in enumerate(self.eviction):
            while order is not None and (block := order.lapsed(now_ns, self._standing(tier))) is not None:
                self._take_off(tier, block, now_ns)
                self.tiers[tier].free += 1
                self._discard_if_gone(block)

    def _take_off(self, tier: int, block: Block, now_ns: int) -> None:
        self._note_evicted(tier, block, now_ns)
        self._set(block, tier, ABSENT)

    def _demote(self, tier: int, victims: list[Block], now_ns: int) -> list[tuple[int, int]]:
        below = tier + 1
        pending: list[tuple[int, int]] = []
        to_write = []
        for block in self._one_by_one(tier, victims):
            if block.state[below] == ABSENT:
                self._hold(below, block)
                to_write.append(block)
            elif block.state[below] == READY:
                self.tiers[tier].free += 1
            else:
                pending.append((block.by[below], 1))
            self._take_off(tier, block, now_ns)
        fits = self._available(below) if self.tiers[tier].write_back else 0
        excess = max(len(to_write) - fits, 0)
        for block in to_write[:excess]:
            self._let_go(tier, block)
        written = to_write[excess:]
        after = self._make_room(below, len(written), now_ns) if written else None
        if after is None:
            for block in written:
                self._let_go(tier, block)
            return pending
        self.tiers[below].in_flight += len(written)
        move = self._new_move(Move(below, written, held=written))
        for block in written:
            block.access[below] = block.access[tier]
            self._set(block, below, IN_FLIGHT, move)
        self.orders.append((move, tier, below, len(written), [m for m, _ in after]))
        pending.append((move, len(written)))
        return pending

    def _let_go(self, tier: int, block: Block) -> None:
        self._hold(tier + 1, block, -1)
        self.tiers[tier].free += 1
        self.tiers[tier].overflowed += 1
        self._discard_if_gone(block)
        # a block before it may be gone already, kept only for this one
        if block.parent is not None:
            self._sweep_orphans(block.parent)

    def _discard_if_gone(self, block: Block) -> None:
        """Remove a block without copies and all that hangs below it, except what somebody pins."""
        if not block.gone():
            return
        below = [block]
        for at in below:
            below.extend(at.children.values())
        for at in reversed(below):
            if self._pinned(at):
                continue
            for tier in range(len(self.tiers)):
                if at.state[tier] == READY:
                    self._set(at, tier, ABSENT)
                    self.tiers[tier].free += 1
                    self.tiers[tier].orphaned += 1
            assert at.parent is not None
            del at.parent.children[at.key]

    def _sweep_orphans(self, block: Block) -> None:
        gone = [b for b in block.path() if b.gone()]
        if gone:
            self._discard_if_gone(gone[-1])

    def _note_evicted(self, tier: int, block: Block, now_ns: int) -> None:
        self.tiers[tier].evicted += 1
        self._digest.word((EVICT | tier << 8 | now_ns << 16) & (1 << 64) - 1)
        self._digest.word(block.key)
        self._log_eviction(now_ns, tier, 1)

    def _new_move(self, move: Move) -> int:
        handle = next(HANDLES)
        self.moves[handle] = move
        return handle

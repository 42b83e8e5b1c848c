"""The invariants of the plain store, recounted from its leases, holds and moves.

I2: a tier's free, active, cached and in-flight blocks sum to its capacity, and a block that waits for it is
in a backlog, once. I3: a reference count is the number of users, and a block in use is not evictable. I4: a
block without a copy is in use, and a block on the GPU has its parent there. I7: a copy in flight has a move
that writes it, and a ready one has its times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.spec.blocks import ABSENT, GPU, IN_FLIGHT, READY, WAITING, Block, Hold, Tier
from kvcache_sim.spec.residency import Residency
from kvcache_sim.spec.simplified_store import SimplifiedStore
from kvcache_sim.spec.store import Store


class Census:
    """The ready, evictable and waiting copies of each tier, counted from the blocks themselves."""

    def __init__(self, tiers: int) -> None:
        self.ready, self.evictable = [0] * tiers, [0] * tiers
        self.waiting: list[set[Block]] = [set() for _ in range(tiers)]
        self._counted: dict[Block, list[tuple[bool, bool]]] = {}

    def count(self, block: Block) -> None:
        """Count a block as it is now, in place of what it was; not at all once it left the tree."""
        was = self._counted.pop(block, [(False, False)] * len(self.ready))
        is_there = block.parent is not None and block.parent.children.get(block.key) is block
        copies = block.copies[: len(self.ready)]  # the last one stands for a backlog
        now = [(is_there and c.state == READY, is_there and c.evictable) for c in copies]
        if is_there:
            self._counted[block] = now
        for tier, (before, after) in enumerate(zip(was, now, strict=True)):
            self.ready[tier] += after[0] - before[0]
            self.evictable[tier] += after[1] - before[1]
            waits = is_there and copies[tier].state == WAITING
            (self.waiting[tier].add if waits else self.waiting[tier].discard)(block)


class CheckedStore(Store):
    """The plain store with a check of its invariants.

    With ``by_event`` a check looks at what changed since the last one: the blocks whose copies, users or
    moves did, their parents, and the leases and moves there are; the first looks at the whole store.
    """

    by_event = False
    _touched: set[Block] | None = None

    def _review(self, block: Block) -> None:
        if self._touched is not None:
            self._touched.add(block)
        super()._review(block)

    def _hold(self, tier: int, end: Block, users: int = 1) -> None:
        if self._touched is not None:
            self._touched.add(end)
        super()._hold(tier, end, users)

    def _add_block(self, parent: Block, key: int, request: int) -> Block:
        block = super()._add_block(parent, key, request)
        if self._touched is not None:
            self._touched.add(block)
        return block

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant. Cost: the whole store, or what changed."""
        for broken in self._changed() if self.by_event else violations(self):
            raise RuntimeError(broken)

    def _changed(self) -> Iterator[str]:
        users = Counter(self.paths_in_use())
        if self._touched is None:
            self._touched, self._census = set(self.blocks()), Census(len(self.tiers))
            self._users, self._moves = users, dict(self.moves)
        near = self._touched | {hold.end for hold, count in users.items() if self._users[hold] != count}
        near |= {hold.end for hold in self._users.keys() - users.keys()}
        for handle in self._moves.keys() ^ self.moves.keys():
            near.update((self.moves.get(handle) or self._moves[handle]).blocks)
        for block in list(near):
            near.add(block.parent or self.root)
            if block.copies[GPU].state == ABSENT:
                near.update(block.children.values())
        near.discard(self.root)
        self._users, self._moves, self._touched = users, dict(self.moves), set()
        for block in near:
            self._census.count(block)
        yield from _counts(self, self._census)
        for block in near:
            if block.parent is not None and block.parent.children.get(block.key) is block:
                yield from _block(self, block, users)


class CheckedTokens(SimplifiedStore):
    """The store of unique tokens with a check of its counts."""

    def check(self) -> None:
        """Raise RuntimeError naming the first count that does not add up (I2, I3)."""
        private = sum(lease.private for lease in self._leases.values())
        remainders = sum(kept.remainder for kept in self._kept.values())
        if (private, remainders) != (self._private, self._remainders):
            raise RuntimeError(f"I2: {private} private and {remainders} kept tokens, counted otherwise")
        if self.capacity is not None and self.used > self.capacity:
            raise RuntimeError(f"I2: {self.used} tokens in memory for {self.capacity}")
        if self._kept.keys() != self.sessions.active_sessions_kv_state.keys():
            raise RuntimeError("I3: the sessions known are not the sessions held")


def violations(store: Residency) -> Iterator[str]:
    """Yield each broken invariant in words. Cost: the blocks of the store."""
    census, users = Census(len(store.tiers)), Counter(store.paths_in_use())
    for block in store.blocks():
        census.count(block)
    yield from _counts(store, census)
    for block in store.blocks():
        yield from _block(store, block, users)


def _counts(store: Residency, census: Census) -> Iterator[str]:
    for tier in store.tiers:
        yield from _freeing(store, tier, census.ready[tier.number], census.evictable[tier.number])
        waiting = Counter(block for backlog in tier.backlogs for block in backlog.blocks)
        if waiting != Counter(census.waiting[tier.number]):
            yield f"I2: {waiting.total()} blocks wait for tier {tier.number}, marked otherwise"


def _freeing(store: Residency, tier: Tier, cached: int, evictable: int) -> Iterator[str]:
    moves = store.moves.values()
    in_flight = sum(freed.blocks for freed in tier.coming)
    in_flight += sum(len(move.blocks) for move in moves if move.to == tier.number and move.lease is None)
    active = 0
    if tier.number == GPU:
        in_flight += sum(share.blocks for move in moves for share in move.waiting)
        active = sum(lease.reserved - lease.pending for lease in store.leases.values())
    counted = tier.active, tier.cached, tier.in_flight, tier.evictable
    if counted != (active, cached, in_flight, evictable):
        found = f"{active}, {cached}, {in_flight}, {evictable}"
        yield f"I2: tier {tier.number} counts {counted} active, cached, in flight, evictable, has {found}"
    if tier.free < 0 or tier.free + active + cached + in_flight != tier.capacity:
        yield f"I2: tier {tier.number} has {tier.free} of {tier.capacity} blocks free, {counted} used"


def _block(store: Residency, block: Block, users: Counter[Hold]) -> Iterator[str]:
    assert block.parent is not None
    present = sum(copy.state != ABSENT for copy in block.copies)
    if block.present != present:
        yield f"I4: block {block.key} counts {block.present} copies, has {present}"
    if not present and not block.is_in_use:
        yield f"I4: block {block.key} has no copy and no user"
    parent_on_gpu = block.parent is store.root or block.parent.copies[GPU].state != ABSENT
    if block.copies[GPU].state != ABSENT and not parent_on_gpu:
        yield f"I4: block {block.key} is on {TIERS[GPU]}, its parent is not"
    for copy in block.copies:
        where = f"block {block.key} on tier {copy.tier}"
        below = [child.copies[copy.tier] for child in block.children.values()]
        expected = users[Hold(copy.tier, block)] + sum(child.ref_count > 0 for child in below)
        if copy.ref_count != expected or (copy.ref_count and copy.evictable):
            yield f"I3: {where} counts {copy.ref_count} users, has {expected}; evictable: {copy.evictable}"
        if copy.children != sum(child.state > WAITING for child in below):
            yield f"I4: {where} counts {copy.children} children"
        move = store.moves.get(copy.move)
        written = move is not None and move.to == copy.tier and block in move.blocks
        if (copy.state == IN_FLIGHT and not written) or (copy.state == WAITING and (move is None or written)):
            yield f"I7: {where} is in flight, or waits, without a move"
        if (copy.ready is None) == (copy.state == READY) or (copy.ready or (0, 0))[1] > store.latest_ns:
            yield f"I7: {where} is in state {copy.state}, ready at {copy.ready}"

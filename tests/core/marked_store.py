"""The plain store of ``spec/`` with the marks that manual cache operations set on the core's store."""

from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.spec.blocks import ABSENT, GPU, IN_FLIGHT, READY, Hold, Move
from support.product.spec import Block
from support.spec_store import WholeStore


class MarkedStore(WholeStore):
    """A claim of space is a move of nameless blocks until the claim is filled."""

    def claim(self, tier: int, blocks: int, now_ns: int) -> tuple[int, list[int]] | None:
        """Take space on a tier; return the claim and the moves that must end first, None if refused."""
        space = self._acquire_space(tier, blocks, now_ns)
        if space is None:
            return None
        self.tiers[tier].in_flight += blocks
        handle = next(self._handles)
        after = sorted({move for move, _ in space})
        self.moves[handle] = Move(tier, [self.root] * blocks, after=after)
        return handle, after

    def _advances(self, handle: int, others: set[int]) -> bool:
        return self.root not in self.moves[handle].blocks and super()._advances(handle, others)

    def release_claim(self, claim: int) -> None:
        """Free claimed space in which no block was placed."""
        move = self.moves.pop(claim)
        self.tiers[move.to].in_flight -= len(move.blocks)
        self.tiers[move.to].free += len(move.blocks)

    def fill_claim(self, claim: int, request: int, part: tuple[int, int], source: int | None) -> bool:
        """Mark blocks as being written into claimed space of their size; return whether that is possible."""
        move, (start, end) = self.moves[claim], part
        path = self._find(request, end)
        if not self._may_allocate(path, len(self._found(request, end)), part, move.to, source):
            return False
        parent = path[-1] if path else self.root
        path += self._grow(parent, list(self.keys.path(request, len(path), end)), request)
        access = self._count_access()
        for block in path[start:]:
            block.copies[move.to].last_access = access if source is None else block.copies[source].last_access
            self._set_state(block, move.to, IN_FLIGHT, claim)
        move.blocks = path[start:]
        move.holds = [Hold(tier, path[-1]) for tier in (move.to, source) if tier is not None]
        for tier, last in move.holds:
            self._hold(tier, last)
        return True

    def _may_allocate(
        self, path: list[Block], found: int, part: tuple[int, int], tier: int, source: int | None
    ) -> bool:
        start, end = part
        if found < start or (source is not None and len(path) < end):
            return False
        if tier == GPU and start and path[start - 1].copies[GPU].state == ABSENT:
            return False
        return all(
            block.copies[tier].state == ABSENT and (source is None or block.copies[source].state != ABSENT)
            for block in path[start:]
        )

    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        """Mark blocks absent from a tier, from the last one on as far as nothing keeps them; return how
        many."""
        removed = 0
        for block in reversed(self._found(request, part[1])[part[0] :]):
            copy = block.copies[tier]
            is_last = all(c.state == ABSENT for c in block.copies if c is not copy)
            if copy.state != READY or copy.ref_count or copy.children or (is_last and block.is_in_use):
                break
            self._set_state(block, tier, ABSENT)
            self.tiers[tier].free += 1
            self._discard_if_gone(block)
            removed += 1
        return removed

    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        """Return of each found block (past it, per tier: the writing move, ``NO_MOVE`` or ``NO_COPY``)."""
        listed = []
        for end, copies in self.residency(request, limit):
            there = {tier: move for tier, move, *_ in copies}
            listed.append((end, [there.get(tier, NO_COPY) for tier in range(len(self.tiers))]))
        return listed

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return of each found block (past it, users, last access of its fastest copy)."""
        users: dict[Block, int] = {}
        for _, end in self.paths_in_use():
            for block in end.path():
                users[block] = users.get(block, 0) + 1
        found = self._found(request, limit)
        return [(block.depth + 1, users.get(block, 0), block.fastest.last_access) for block in found]

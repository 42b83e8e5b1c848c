"""Marking by hand: room claimed, blocks placed and taken away, and every copy of a path."""

from __future__ import annotations

from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.reference.store.blocks import ABSENT, GPU, IN_FLIGHT, READY, Move
from kvcache_sim.reference.store.moves import NOT_FREE, Moves
from kvcache_sim.reference.store.refusals import numbered, refuse


class Marks(Moves):
    """The basic operations of seed 001; a claim is a move without blocks until they are placed."""

    @numbered
    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        """Return (past the block, move writing it on each tier) of each found block."""
        self._known_request(request)
        by = {ABSENT: NO_COPY, READY: NO_MOVE}
        return [
            (depth + 1, [by.get(state, move) for state, move in zip(block.state, block.by, strict=True)])
            for depth, block in enumerate(self._found(request, limit))
        ]

    @numbered
    def moved_keys(self, move: int) -> list[int]:
        """Return the keys of the blocks that a move writes, ascending."""
        return sorted(block.key for block in self._under_way(move).blocks)

    @numbered
    def moved_paths(self, move: int) -> list[tuple[int, int]]:
        """Return the paths that a move writes, each to its deepest block."""
        blocks = self._under_way(move).blocks
        continued = {id(block.parent) for block in blocks}
        deepest = [block for block in blocks if id(block) not in continued]
        deepest.sort(key=lambda block: (-block.depth, block.key))
        return [(block.request, block.depth + 1) for block in deepest]

    @numbered
    def claim(self, tier: int, blocks: int, now_ns: int) -> tuple[int, list[int]] | None:
        """Take room on a tier."""
        self._known_tier(tier)
        pending = self._make_room(tier, blocks, now_ns)
        if pending is None:
            return None
        self.tiers[tier].in_flight += blocks
        after = sorted({move for move, _ in pending})
        claim = self._new_move(Move(tier, [], claimed=blocks, after=after))
        return claim, list(after)

    @numbered
    def give_back(self, claim: int) -> None:
        """Give claimed room back."""
        move, blocks = self._claimed(claim)
        if self._some_under_way(move.after):
            raise refuse(*NOT_FREE)
        del self.moves[claim]
        tier = self.tiers[move.to]
        tier.in_flight -= blocks
        tier.free += blocks

    def _claimed(self, claim: int) -> tuple[Move, int]:
        move = self.moves.get(claim)
        if move is None or move.claimed is None:
            raise refuse("no claimed room", "a claim without blocks")
        return move, move.claimed

    @numbered
    def place(self, claim: int, request: int, part: tuple[int, int], source: int | None) -> bool:
        """Mark blocks as being written into claimed room."""
        start, end = part
        move, blocks = self._claimed(claim)
        self._known_request(request)
        if start >= end:
            raise refuse("no blocks", "a first block before the end")
        if blocks != end - start:
            raise refuse("not the size of the claim", f"{blocks} blocks")
        if source is not None:
            self._known_tier(source)
        tier, path = move.to, self._find(request, end)
        if len(self._found(request, end)) < start or (source is not None and len(path) < end):
            return False
        if tier == GPU and start and path[start - 1].state[GPU] == ABSENT:
            return False
        for block in path[start:]:
            if block.state[tier] != ABSENT or (source is not None and block.state[source] == ABSENT):
                return False
        parent = path[-1] if path else self.root
        for depth in range(len(path), end):
            block = self._add(parent, request, depth)
            path.append(block)
            parent = block
        access = self._tick()
        for block in path[start:]:
            block.access[tier] = access if source is None else block.access[source]
            self._set(block, tier, IN_FLIGHT, claim)
        self._hold(tier, parent)
        move.blocks, move.held = path[start:], [parent]
        if source is not None:
            self._hold(source, parent)
            move.sources = [(source, parent)]
        move.claimed = None
        return True

    @numbered
    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        """Mark blocks absent, from the last one on as far as they may go."""
        self._known_tier(tier)
        self._known_request(request)
        start, end = part
        removed = 0
        for block in reversed(self._found(request, end)[start:]):
            followed = any(child.state[tier] != ABSENT for child in block.children.values())
            last = all(block.state[t] == ABSENT for t in range(len(self.tiers)) if t != tier)
            if block.state[tier] != READY or block.holds[tier] or followed or (last and self._pinned(block)):
                break
            self._set(block, tier, ABSENT)
            self.tiers[tier].free += 1
            self._discard_if_gone(block)
            removed += 1
        return removed

"""Copies between the tiers of a machine (semantics 4)."""

from __future__ import annotations

from kvcache_sim.cache.store import Order
from kvcache_sim.reference.store.blocks import ABSENT, GPU, IN_FLIGHT, READY, Block, Lease, Move
from kvcache_sim.reference.store.leases import Leases
from kvcache_sim.reference.store.refusals import in_order, numbered, refuse

_WRONG_TIER = "not on this tier", "a tier below the gpu, with one below it where blocks are read from there"
NOT_FREE = "the room is not free yet", "the writes that it waits for to have ended"


class Moves(Leases):
    """Reads blocks up and writes them down; a copy is found at once and ready when its move is finished."""

    def _land(self, blocks: list[Block], to: int, after: list[int], lease: Lease | None) -> int:
        tail = blocks[-1]
        move = self._new_move(Move(to, blocks, lease, [(to + 1, tail)], [tail]))
        self._hold(to + 1, tail)
        self._hold(to, tail)
        for block in blocks:
            block.access[to] = block.access[to + 1]
            self._set(block, to, IN_FLIGHT, move)
        self.orders.append((move, to + 1, to, len(blocks), list(after)))
        return move

    def _extend(self, lease: Lease, blocks: list[Block]) -> None:
        for block in blocks:
            block.holds[GPU] += 1
            self._use(block, lease.access)
            block.uses += 1
            lease.tail = block
        lease.depth += len(blocks)
        lease.found = lease.depth

    @numbered
    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks from the CPU into reserved blocks."""
        held = self._lease(lease)
        if to <= held.depth:
            raise refuse("no blocks", "a first block before the end")
        if to - held.depth > held.reserved - held.loading:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        for move in after:
            self._under_way(move)
        self._known_tier(GPU + 1)
        blocks = self._path(held.request, to)[held.depth :]
        self._can_be_copied(blocks, GPU + 1, GPU)
        held.loading += len(blocks)
        move = self._land(blocks, GPU, after, held)
        self._extend(held, blocks)
        return move

    def _can_be_copied(self, blocks: list[Block], source: int, to: int) -> None:
        for block in reversed(blocks):
            self._there(block, source)
            if block.state[to] != ABSENT:
                raise refuse("a block is on the tier already", "no copy of any block there")

    @numbered
    def join(self, lease: int, to: int) -> None:
        """Hold blocks that another request is loading."""
        held = self._lease(lease)
        if to <= held.depth:
            raise refuse("no blocks", "a first block before the end")
        path = self._path(held.request, to)
        self._there(path[-1], GPU)
        self._extend(held, path[held.depth :])

    @numbered
    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks one tier up, room made there first."""
        self._known_tier(to_tier)
        if to_tier == GPU or to_tier + 1 == len(self.tiers):
            raise refuse(*_WRONG_TIER)
        if ready is not None:
            self._under_way(ready)
        blocks = self._part(request, *part)
        self._can_be_copied(blocks, to_tier + 1, to_tier)
        self._hold(to_tier + 1, blocks[-1])
        room = self._make_room(to_tier, len(blocks), now_ns)
        self._hold(to_tier + 1, blocks[-1], -1)
        if room is None:
            return None
        self.tiers[to_tier].in_flight += len(blocks)
        after = [m for m, _ in room] + ([] if ready is None else [ready])
        return self._land(blocks, to_tier, after, None)

    @numbered
    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy blocks from the GPU to the CPU where it has none."""
        held = self._lease(lease)
        self._known_tier(GPU + 1)
        if start == end:
            return None
        if end > held.depth:
            raise refuse("more blocks than the lease holds", "blocks of its path")
        self._part(held.request, start, end)
        path = self._path(held.request, end)
        return self._copy_down(GPU, path[start:], [path[-1]], now_ns)

    @numbered
    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy what the lease holds and ``uses`` requests have used one tier down."""
        path = self._lease(lease).tail.path()
        self._known_tier(tier)
        if tier + 1 == len(self.tiers):
            raise refuse(*_WRONG_TIER)
        often = [b for b in path if b.uses >= uses and b.state[tier] == READY]
        often = [b for b in often if b.state[tier + 1] == ABSENT]
        return self._copy_down(tier, often[::-1], often[:1], now_ns)

    @numbered
    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy what a move is about to make ready one tier further down."""
        on_its_way = self._under_way(move)
        if on_its_way.to + 1 == len(self.tiers):
            return None
        return self._copy_down(on_its_way.to, on_its_way.blocks, on_its_way.held, now_ns)

    def _copy_down(self, tier: int, blocks: list[Block], sources: list[Block], now_ns: int) -> int | None:
        below = tier + 1
        missing = [b for b in blocks if b.state[below] == ABSENT]
        if not missing:
            return None
        for source in sources:
            self._hold(tier, source)
        room = self._make_room(below, len(missing), now_ns)
        if room is None:
            for source in sources:
                self._hold(tier, source, -1)
                self._sweep_orphans(source)
            return None
        self.tiers[below].in_flight += len(missing)
        held = [(tier, source) for source in sources]
        move = self._new_move(Move(below, missing, None, held, missing))
        for block in missing:
            block.access[below] = block.access[tier]
            self._set(block, below, IN_FLIGHT, move)
            self._hold(below, block)
        self.orders.append((move, tier, below, len(missing), [m for m, _ in room]))
        return move

    def _some_under_way(self, moves: list[int]) -> bool:
        return any(move in self.moves for move in moves)

    def take_orders(self) -> list[Order]:
        """Return the transmissions decided since the last call."""
        taken, self.orders = self.orders, []
        return taken

    @numbered
    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Tell when what a move writes will be ready."""
        under_way = self._under_way(move)
        in_order((first_layer_ns, ready_ns))
        under_way.times = first_layer_ns, ready_ns

    @numbered
    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready and its room free."""
        done = self._under_way(move)
        if done.claimed is not None:
            raise refuse("no blocks were placed in the claimed room", "placed blocks; give the room back")
        early = done.lease is not None and done.lease.reserved - done.lease.pending < len(done.blocks)
        if early or self._some_under_way(done.after):
            raise refuse(*NOT_FREE)
        del self.moves[move]
        times = done.times or (self.latest_ns, self.latest_ns)
        self.latest_ns = max(self.latest_ns, times[1])
        for block in done.blocks:
            self._set(block, done.to, READY)
            block.ready[done.to] = times
        for block in done.held:
            self._hold(done.to, block, -1)
            self._sweep_orphans(block)
        for tier, tail in done.sources:
            self._hold(tier, tail, -1)
            self._sweep_orphans(tail)
        if done.lease is None:
            self.tiers[done.to].in_flight -= len(done.blocks)
        else:
            self.tiers[done.to].active -= len(done.blocks)
            done.lease.reserved -= len(done.blocks)
            done.lease.loading -= len(done.blocks)
        for lease in done.waiting:
            self.tiers[GPU].in_flight -= 1
            lease.pending -= 1
            if lease.live:
                self.tiers[GPU].active += 1
            else:
                lease.reserved -= 1
                self.tiers[GPU].free += 1
        for room in self.tiers:
            came = sum(blocks for other, blocks in room.coming if other == move)
            room.coming = [(other, blocks) for other, blocks in room.coming if other != move]
            room.in_flight -= came
            room.free += came

    @numbered
    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop lower copies that nobody holds and that are not the last."""
        self._known_tier(tier)
        for block in reversed(self._part(request, start, end)):
            elsewhere = any(block.state[t] != ABSENT for t in range(len(self.tiers)) if t != tier)
            if block.state[tier] == READY and not block.holds[tier] and elsewhere:
                self._set(block, tier, ABSENT)
                self.tiers[tier].free += 1

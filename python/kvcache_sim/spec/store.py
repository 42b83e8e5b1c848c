"""The block store of one machine: leases and moves (seed 000, 3.5; seed 001; semantics 2, 4).

A request acquires the leading blocks of its path that the GPU has and reserves private blocks for the tokens
to compute: seed 001's active blocks. ``commit`` shares full blocks (``switch_active_fullblocks_into_cache``).
If the GPU already has the block, computed by another request meanwhile, the request's own is freed and it
uses the other. ``release`` ends all uses and makes the held blocks recent, in all tiers where they are ready,
the deepest first. A shared block counts once, until its last user ends (seed 000, 3.5, "Detailed Model").

A move copies blocks between neighboring tiers, or from another machine to the CPU (seed 001, "Movements").
Space is made on the target first. Then the source and the new copies are in use until the move ends: found
at once, in flight, and ready when the move is finished, with the times of its transmission. The lower copy
of a block that is read stays. The store has the methods of the core's ``Store`` and shares no code with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.store import BlockRange, Times, Wanted
from kvcache_sim.spec.blocks import (
    ABSENT,
    CPU,
    GPU,
    READY,
    REMOTE,
    Block,
    Freed,
    Hold,
    Lease,
    Move,
    Share,
)
from kvcache_sim.spec.residency import refused
from kvcache_sim.spec.space import Space


class Store(Space):
    """The plain block store; ``Residency`` lists its arguments."""

    # -- leases

    def _lease(self, lease: int) -> Lease:
        if lease not in self.leases:
            raise refused("no such lease", "one that is held")
        return self.leases[lease]

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks of a path on the GPU; return the lease."""
        path = self._path(request, depth)
        self._hold(GPU, self._end_of(path, GPU))
        handle = next(self._handles)
        self.leases[handle] = Lease(request, path, self._count_access())
        return handle

    def abandon(self, lease: int) -> None:
        """Undo an acquisition without an effect on recency."""
        if self._lease(lease).reserved:
            raise refused("blocks are reserved", "a lease without a reservation; release it")
        self._end(lease)

    def _end(self, lease: int) -> None:
        held = self.leases.pop(lease)
        held.live = False
        self._unhold(GPU, held.path[-1] if held.path else self.root)

    def depth(self, lease: int) -> int:
        """Return the number of cached blocks that a lease holds."""
        return len(self._lease(lease).path)

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks; return the moves that must finish before, None if refused."""
        return self.reserve_many([Wanted(lease, blocks)], now_ns)

    def reserve_many(self, wanted: Sequence[Wanted], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several leases, all or nothing."""
        shares = [Share(self._lease(lease), blocks) for lease, blocks in wanted]
        total = sum(blocks for _, blocks in wanted)
        late = self._acquire_space(GPU, total, now_ns)
        if late is None:
            return None
        gpu, late_blocks = self.tiers[GPU], sum(freed.blocks for freed in late)
        gpu.active += total - late_blocks
        gpu.in_flight += late_blocks
        for share in shares:
            share.lease.reserved += share.blocks
        self._distribute(late, shares)
        return sorted({freed.move for freed in late})

    def _distribute(self, late: list[Freed], shares: list[Share]) -> None:
        """Assign the blocks that are free later to the first leases."""
        takers = [share for share in shares if share.blocks]
        for move, blocks in late:
            while blocks:
                held, lacking = takers.pop(0)
                part = min(blocks, lacking)
                held.pending += part
                self.moves[move].waiting.append(Share(held, part))
                blocks -= part
                if lacking > part:
                    takers.insert(0, Share(held, lacking - part))

    def commit(self, lease: int, to: int, ready: Times | None = None) -> None:
        """Share the lease's computed blocks up to ``to``.

        ``ready``: when their first layer, and all layers, were computed, in ns; None: the latest time known.
        """
        held = self._lease(lease)
        start = len(held.path)
        if to - start > held.reserved - max(held.pending, held.loading):
            raise refused("more blocks than are reserved and free", "a reservation first")
        times = Times(self.latest_ns, self.latest_ns) if ready is None else Times(*ready)
        self.latest_ns = max(self.latest_ns, times.all_layers_ns)
        gpu = self.tiers[GPU]
        for key in self.keys.path(held.request, start, to):
            tail = held.path[-1] if held.path else self.root
            block = tail.children.get(key) or self._add_block(tail, key, held.request)
            self._lengthen(held, [block])  # before it is ready, so that it cannot be evicted
            gpu.active -= 1
            held.reserved -= 1
            if block.copies[GPU].state == ABSENT:
                block.copies[GPU].last_access = held.access
                self._set_state(block, GPU, READY, times=times)
            else:
                gpu.free += 1
                self.merged_blocks += 1

    def _lengthen(self, held: Lease, blocks: list[Block]) -> None:
        """Hold the next blocks of a lease's path."""
        self._hold(GPU, blocks[-1])
        self._unhold(GPU, held.path[-1] if held.path else self.root)
        held.path += blocks

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease, make its path recent, and free its private blocks."""
        held = self._lease(lease)
        if held.loading:
            raise refused("blocks are still being loaded", "its loads to have ended")
        self._advance(now_ns)
        self._on_release(held.path)
        self._end(lease)
        free = held.reserved - held.pending
        self.tiers[GPU].active -= free
        self.tiers[GPU].free += free
        held.reserved = held.pending

    def _on_release(self, path: list[Block]) -> None:
        """Make a path the most recently used."""
        access = self._count_access()
        for block in reversed(path):
            for copy in block.copies:
                if copy.state == READY:
                    copy.last_access = access
                    self.eviction_orders[copy.tier].on_release(block, access, self.now_ns)
                    if copy.evictable:
                        self._offer(block, copy.tier)

    # -- moves up

    def _part(self, request: int, start: int, end: int, to: int | None = None) -> list[Block]:
        """Return blocks of a path; blocks to read up to tier ``to`` must be on the tier below only."""
        if start >= end:
            raise refused("no blocks", "a first block before the end")
        blocks = self._path(request, end, start)
        if to is not None:
            for block in blocks:
                if block.copies[to + 1].state == ABSENT or block.copies[to].state != ABSENT:
                    raise refused("a block cannot be copied", "a copy of every block below, and none above")
        return blocks

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's blocks up to ``to`` from the CPU into reserved blocks; return the move."""
        held = self._lease(lease)
        blocks = self._part(held.request, len(held.path), to, GPU)
        if len(blocks) > held.reserved - held.loading:
            raise refused("more blocks than are reserved and free", "a reservation first")
        held.loading += len(blocks)
        move = self._read_up(blocks, GPU, after, held)
        self._lengthen(held, blocks)
        return move

    def join(self, lease: int, to: int) -> None:
        """Hold blocks up to ``to`` that another request is loading."""
        held = self._lease(lease)
        blocks = self._part(held.request, len(held.path), to)
        self._end_of(blocks, GPU)
        self._lengthen(held, blocks)

    def stage(
        self, request: int, part: BlockRange, to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks up to a tier for a load; return the move, None without space.

        ``ready``: the move that makes them ready on the tier below; None if they are ready.
        """
        blocks = self._part(request, *part, to_tier)
        space = self._acquire_space_for(Hold(to_tier + 1, blocks[-1]), to_tier, len(blocks), now_ns)
        if space is None:
            return None
        after = space if ready is None else [*space, ready]
        return self._read_up(blocks, to_tier, after, None)

    def _acquire_space_for(self, used: Hold, tier: int, blocks: int, now_ns: int) -> list[int] | None:
        """Take blocks from a tier while a path is in use; return the moves to wait for, None if refused."""
        self._hold(*used)
        space = self._acquire_space(tier, blocks, now_ns)
        self._unhold(*used)
        return None if space is None else [freed.move for freed in space]

    def _read_up(self, blocks: list[Block], to: int, after: list[int], lease: Lease | None) -> int:
        holds = [Hold(to, blocks[-1]), Hold(to + 1, blocks[-1])]
        return self._start(Move(to, blocks, lease, self._held(holds)), to + 1, after)

    def _held(self, holds: list[Hold]) -> list[Hold]:
        """Hold paths for a move."""
        for hold in holds:
            self._hold(*hold)
        return holds

    # -- moves down

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy blocks [start, end) of a lease that the CPU lacks to it; return the move, None without one."""
        path = self._lease(lease).path[:end]
        return self._copy_down(GPU, path[start:], path[-1:], now_ns) if start < end else None

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy the blocks of a move one tier further down; call it before ``finish_move``."""
        done = self._open_move(move)
        if done.to + 1 == len(self.tiers):
            return None
        ends = [hold.end for hold in done.holds if hold.tier == done.to]
        return self._copy_down(done.to, done.blocks, ends, now_ns)

    def _copy_down(self, tier: int, blocks: list[Block], ends: list[Block], now_ns: int) -> int | None:
        """Write the blocks that the next tier lacks to it; ``ends``: ends of the paths to hold meanwhile."""
        below = tier + 1
        missing = [block for block in blocks if block.copies[below].state == ABSENT]
        if not missing:
            return None
        holds = self._held([Hold(tier, end) for end in ends])
        space = self._acquire_space(below, len(missing), now_ns)
        if space is None:
            for hold in holds:
                self._end_use(*hold)
            return None
        holds += self._held([Hold(below, block) for block in missing])
        return self._start(Move(below, missing, holds=holds), tier, (freed.move for freed in space))

    # -- other machines

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier until the returned move is finished: nothing is sent."""
        tail = self._end_of(self._path(request, end), tier)
        handle = next(self._handles)
        self.moves[handle] = Move(tier, [], holds=self._held([Hold(tier, tail)]))
        return handle

    def receive(self, request: int, part: BlockRange, now_ns: int) -> int | None:
        """Store blocks of another machine on the CPU; return the move, or None."""
        start, end = part
        path = self._path(request, start)
        parent = path[-1] if path else self.root
        keys = list(self.keys.path(request, start, end))
        if keys[0] in parent.children:
            return None
        space = self._acquire_space_for(Hold(CPU, parent), CPU, len(keys), now_ns)
        if space is None:
            return None
        blocks = self._grow(parent, keys, request)
        return self._start(Move(CPU, blocks, holds=self._held([Hold(CPU, blocks[-1])])), REMOTE, space)

    def _grow(self, parent: Block, keys: list[int], request: int) -> list[Block]:
        blocks: list[Block] = []
        for key in keys:
            parent = self._add_block(parent, key, request)
            blocks.append(parent)
        return blocks

    # -- the end of a move

    def _open_move(self, move: int) -> Move:
        if move not in self.moves:
            raise refused("no such move", "one that is in flight")
        return self.moves[move]

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Set the ready times of the blocks that a move writes; its copies keep them."""
        self._open_move(move).times = Times(first_layer_ns, ready_ns)

    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready, end its uses, and free the space that it blocked."""
        done = self._open_move(move)
        del self.moves[move]
        times = done.times or Times(self.latest_ns, self.latest_ns)
        self.latest_ns = max(self.latest_ns, times.all_layers_ns)
        for block in done.blocks:
            self._set_state(block, done.to, READY, times=times)
        for hold in done.holds:
            self._end_use(*hold)
        if done.lease is None:
            self.tiers[done.to].in_flight -= len(done.blocks)
        else:
            self.tiers[done.to].active -= len(done.blocks)
            done.lease.reserved -= len(done.blocks)
            done.lease.loading -= len(done.blocks)
        self._free_space_of(move, done)

    def _free_space_of(self, move: int, done: Move) -> None:
        gpu = self.tiers[GPU]
        for lease, blocks in done.waiting:
            gpu.in_flight -= blocks
            lease.pending -= blocks
            if lease.live:
                gpu.active += blocks
            else:
                lease.reserved -= blocks
                gpu.free += blocks
        for tier in self.tiers:
            came = sum(freed.blocks for freed in tier.coming if freed.move == move)
            tier.coming = [freed for freed in tier.coming if freed.move != move]
            tier.in_flight -= came
            tier.free += came

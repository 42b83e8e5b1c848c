"""The block store of one machine: moves between its tiers and to others (seed 001, "movements"; semantics 4).

A move copies blocks between neighboring tiers, or from another machine to the CPU. Space is made on the
target first. Then the source and the new copies are in use until the move ends: found at once, in flight,
and ready when the move is finished, with the times of its transmission. A load reads a request's next blocks
from the CPU into its private GPU blocks; ``stage`` reads blocks one tier up, so that a load can follow.
``write_through`` and ``write_on`` copy blocks one tier down. A read copies, the lower copy stays. ``lend``
keeps blocks for another machine until it has read them, ``receive`` lands them there. The store answers the
calls of the core's ``Store`` and shares no code with it.
"""

from __future__ import annotations

from kvcache_sim.spec.blocks import ABSENT, CPU, GPU, IN_FLIGHT, REMOTE, Block, Lease, Move
from kvcache_sim.spec.invariants import violations
from kvcache_sim.spec.leases import Leases
from kvcache_sim.spec.residency import refused


class Store(Leases):
    """The plain block store; ``Residency`` lists its arguments."""

    def _under_way(self, move: int) -> Move:
        if move not in self.moves:
            raise refused("no such move", "one that is under way")
        return self.moves[move]

    def _part(self, request: int, start: int, end: int) -> list[Block]:
        if start >= end:
            raise refused("no blocks", "a first block before the end")
        return self._path(request, end)[start:]

    # -- up

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks up to ``to`` from the CPU into reserved blocks; return the move."""
        held = self._lease(lease)
        blocks = self._part(held.request, len(held.path), to)
        if len(blocks) > held.reserved - held.loading:
            raise refused("more blocks than are reserved and free", "a reservation first")
        _check_readable(blocks, GPU)
        held.loading += len(blocks)
        move = self._read_up(blocks, GPU, after, held)
        self._lengthen(held, blocks)
        held.found = len(held.path)
        return move

    def join(self, lease: int, to: int) -> None:
        """Hold blocks that another request is loading."""
        held = self._lease(lease)
        blocks = self._part(held.request, len(held.path), to)
        self._end_of(blocks, GPU)
        self._lengthen(held, blocks)
        held.found = len(held.path)

    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks one tier up; return the move, None without space.

        ``ready`` is the move that makes them ready on the tier below, None where they are.
        """
        blocks = self._part(request, *part)
        _check_readable(blocks, to_tier)
        self._hold(to_tier + 1, blocks[-1])
        space = self._acquire_space(to_tier, len(blocks), now_ns)
        self._unhold(to_tier + 1, blocks[-1])
        if space is None:
            return None
        self.tiers[to_tier].in_flight += len(blocks)
        after = [move for move, _ in space] + ([] if ready is None else [ready])
        return self._read_up(blocks, to_tier, after, None)

    def _read_up(self, blocks: list[Block], to: int, after: list[int], lease: Lease | None) -> int:
        tail = blocks[-1]
        self._hold(to + 1, tail)
        self._hold(to, tail)
        handle = self._send(Move(to, blocks, lease, [(to, tail), (to + 1, tail)]), to + 1, after)
        for block in blocks:
            block.copies[to].last_access = block.copies[to + 1].last_access
            self._set_state(block, to, IN_FLIGHT, handle)
        return handle

    # -- down

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy the lease's blocks to the CPU where it has none; return the move, None without one."""
        path = self._lease(lease).path[:end]
        return self._copy_down(GPU, path[start:], path[-1:], now_ns) if start < end else None

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy what a move is about to make ready one tier further down; call it before ``finish_move``."""
        done = self._under_way(move)
        if done.to + 1 == len(self.tiers):
            return None
        return self._copy_down(
            done.to, done.blocks, [end for tier, end in done.holds if tier == done.to], now_ns
        )

    def _copy_down(self, tier: int, blocks: list[Block], ends: list[Block], now_ns: int) -> int | None:
        """Write those blocks one tier down that are not there; ``ends``: of the paths to hold meanwhile."""
        below = tier + 1
        missing = [block for block in blocks if block.copies[below].state == ABSENT]
        if not missing:
            return None
        for end in ends:
            self._hold(tier, end)
        space = self._acquire_space(below, len(missing), now_ns)
        if space is None:
            for end in ends:
                self._unhold(tier, end)
                self._discard_unreachable(end)
            return None
        self.tiers[below].in_flight += len(missing)
        for block in missing:
            self._hold(below, block)
        handle = self._start_writing(below, missing, tier, space)
        self.moves[handle].holds += [(tier, end) for end in ends]
        return handle

    # -- other machines

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for another machine until the returned move is finished."""
        tail = self._end_of(self._path(request, end), tier)
        self._hold(tier, tail)
        handle = next(self._handles)
        self.moves[handle] = Move(tier, [], holds=[(tier, tail)])
        return handle

    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Land blocks of another machine on the CPU; return the move, None without space."""
        start, end = part
        path = self._path(request, start)
        parent = path[-1] if path else self.root
        keys = list(self.keys.path(request, start, end))
        if keys[0] in parent.children:
            return None
        self._hold(CPU, parent)
        space = self._acquire_space(CPU, len(keys), now_ns)
        self._unhold(CPU, parent)
        if space is None:
            return None
        self.tiers[CPU].in_flight += len(keys)
        blocks = self._grow(parent, keys, request)
        self._hold(CPU, blocks[-1])
        handle = self._send(Move(CPU, blocks, holds=[(CPU, blocks[-1])]), REMOTE, space)
        access = self._count_access()
        for block in blocks:
            block.copies[CPU].last_access = access
            self._set_state(block, CPU, IN_FLIGHT, handle)
        return handle

    def _grow(self, parent: Block, keys: list[int], request: int) -> list[Block]:
        blocks: list[Block] = []
        for key in keys:
            parent = self._add_block(parent, key, request)
            blocks.append(parent)
        return blocks

    # -- the end of a move

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Set when what a move writes will be ready; its copies keep the times."""
        self._under_way(move).times = first_layer_ns, ready_ns

    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready, end its uses, and free the space that waited for it."""
        done = self._under_way(move)
        del self.moves[move]
        times = done.times or (self.latest_ns, self.latest_ns)
        self.latest_ns = max(self.latest_ns, times[1])
        for block in done.blocks:
            self._set_ready(block, done.to, times)
        for tier, end in done.holds:
            self._unhold(tier, end)
            self._discard_unreachable(end)
        self._settle(done)
        self._free_space_of(move, done)

    def _settle(self, done: Move) -> None:
        """Account for the target blocks of a move: from now on they are cached ones."""
        if done.lease is None:
            self.tiers[done.to].in_flight -= len(done.blocks)
        else:
            self.tiers[done.to].active -= len(done.blocks)
            done.lease.reserved -= len(done.blocks)
            done.lease.loading -= len(done.blocks)

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
            came = sum(blocks for other, blocks in tier.coming if other == move)
            tier.coming = [(other, blocks) for other, blocks in tier.coming if other != move]
            tier.in_flight -= came
            tier.free += came

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant. Cost: the whole store."""
        for broken in violations(self):
            raise RuntimeError(broken)


def _check_readable(blocks: list[Block], to: int) -> None:
    """Refuse blocks that cannot be read up to a tier."""
    for block in blocks:
        if block.copies[to + 1].state == ABSENT or block.copies[to].state != ABSENT:
            raise refused("a block cannot be copied", "a copy of every block below, and none above")

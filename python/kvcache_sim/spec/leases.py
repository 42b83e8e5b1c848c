"""The GPU blocks that running requests hold, from admission to release (seed 000, 3.5 detailed; semantics 2).

A request acquires the leading blocks of its path that the GPU has and reserves private blocks for what it
will compute: seed 001's active blocks. ``commit`` shares the full ones
(``switch_active_fullblocks_into_cache``). Where the GPU has such a block already, computed by another
request meanwhile, the request's own is freed and it uses the other. ``release`` ends all uses and makes the
blocks that were held recent, in all tiers where they are ready, the deepest first. A shared block is counted
once, whoever uses it, and is free again only when its users have gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.spec.blocks import ABSENT, GPU, IN_FLIGHT, READY, Block, Late, Lease
from kvcache_sim.spec.residency import refused
from kvcache_sim.spec.space import Space


class Leases(Space):
    """Holds paths for requests, reserves blocks for what they compute, and shares these."""

    def _lease(self, lease: int) -> Lease:
        if lease not in self.leases:
            raise refused("no such lease", "one that is held")
        return self.leases[lease]

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks of a path on the GPU; return the lease."""
        path = self._path(request, depth)
        self._hold(GPU, self._end_of(path, GPU))
        for block in path:
            block.uses += 1
        handle = next(self._handles)
        self.leases[handle] = Lease(request, path, self._count_access(), depth)
        return handle

    def abandon(self, lease: int) -> None:
        """Take an acquisition back without a trace."""
        held = self._lease(lease)
        if held.reserved:
            raise refused("blocks are reserved", "a lease without a reservation; release it")
        for block in held.path:
            block.uses -= 1
        self._end(lease)

    def _end(self, lease: int) -> None:
        held = self.leases.pop(lease)
        held.live = False
        self._unhold(GPU, held.path[-1] if held.path else self.root)

    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for a moment; return the hold."""
        block = self._end_of(self._path(request, end), tier)
        self._hold(tier, block)
        handle = next(self._handles)
        self.holds[handle] = tier, block
        return handle

    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        if hold not in self.holds or self.holds[hold][0] != tier:
            raise refused("no such hold", "one that is held on this tier")
        _, block = self.holds.pop(hold)
        self._unhold(tier, block)
        self._discard_unreachable(block)

    def depth(self, lease: int) -> int:
        """Return how many blocks a lease holds through the cache."""
        return len(self._lease(lease).path)

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks; return the moves that must end before, None if refused."""
        return self.reserve_many([(lease, blocks)], now_ns)

    def reserve_many(self, wanted: Sequence[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several (lease, blocks), all or nothing."""
        leases = [(self._lease(lease), blocks) for lease, blocks in wanted]
        total = sum(blocks for _, blocks in wanted)
        late = self._acquire_space(GPU, total, now_ns)
        if late is None:
            return None
        gpu, late_blocks = self.tiers[GPU], sum(blocks for _, blocks in late)
        gpu.active += total - late_blocks
        gpu.in_flight += late_blocks
        for held, blocks in leases:
            held.reserved += blocks
            self._on_admission(held, now_ns)
        self._distribute(late, leases)
        return sorted({move for move, _ in late})

    def _distribute(self, late: Late, leases: list[tuple[Lease, int]]) -> None:
        """Give the blocks that are free later to the first leases."""
        takers = [(held, blocks) for held, blocks in leases if blocks]
        for move, blocks in late:
            while blocks:
                held, lacking = takers.pop(0)
                part = min(blocks, lacking)
                held.pending += part
                self.moves[move].waiting.append((held, part))
                blocks -= part
                if lacking > part:
                    takers.insert(0, (held, lacking - part))

    def _on_admission(self, held: Lease, now_ns: int) -> None:
        """Count an admission as an access once space is made for it, not when it is refused."""
        if not held.admitted:
            held.admitted = True
            self.accessed_ns[held.access] = now_ns

    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Share the lease's computed blocks up to ``to``.

        Args:
            lease: The lease.
            to: One past the last block.
            ready: When their first layer, and all layers, were computed, in ns; None: the latest time known.

        Raises:
            StoreError: For more blocks than are reserved and free.
        """
        held = self._lease(lease)
        start = len(held.path)
        if to - start > held.reserved - max(held.pending, held.loading):
            raise refused("more blocks than are reserved and free", "a reservation first")
        times = (self.latest_ns, self.latest_ns) if ready is None else ready
        self.latest_ns = max(self.latest_ns, times[1])
        gpu = self.tiers[GPU]
        for key in self.keys.path(held.request, start, to):
            block = self._extend(held, key)
            gpu.active -= 1
            held.reserved -= 1
            if block.copies[GPU].state == ABSENT:
                block.copies[GPU].last_access = held.access
                self._set_ready(block, GPU, times)
            else:
                gpu.free += 1
                self.merged_blocks += 1

    def _extend(self, held: Lease, key: int) -> Block:
        """Hold the next block of a lease's path, before it is ready: nothing may take it away."""
        tail = held.path[-1] if held.path else self.root
        block = tail.children.get(key) or self._add_block(tail, key, held.request)
        self._lengthen(held, [block])
        return block

    def _lengthen(self, held: Lease, blocks: list[Block]) -> None:
        self._hold(GPU, blocks[-1])
        self._unhold(GPU, held.path[-1] if held.path else self.root)
        for block in blocks:
            block.uses += 1
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

    def touch(self, request: int, end: int) -> None:
        """Make the first ``end`` blocks the most recently used."""
        self._touch(self._path(request, end))

    def _on_release(self, path: list[Block]) -> None:
        self._touch(path)

    def _touch(self, path: list[Block]) -> None:
        access = self._count_access()
        for block in reversed(path):
            for copy in block.copies:
                if copy.state == READY:
                    copy.last_access = access
                    self.orders[copy.tier].on_release(block, access, self.now_ns)
                    if copy.evictable:
                        self._offer(block, copy.tier)

    def discard(self, request: int, start: int, end: int) -> None:
        """Discard a path from ``end`` up to ``start`` or to what is held, in flight or has children."""
        for block in reversed(self._path(request, end)[start:] if start < end else []):
            if block.is_in_use or block.children or any(c.state == IN_FLIGHT for c in block.copies):
                return
            for copy in block.copies:
                if copy.state == READY:
                    self._set_state(block, copy.tier, ABSENT)
                    self.tiers[copy.tier].free += 1
            self._discard_if_gone(block)

"""What running requests hold: from look-up to release."""

from __future__ import annotations

from kvcache_sim.reference.store.blocks import ABSENT, GPU, IN_FLIGHT, READY, Block, Lease
from kvcache_sim.reference.store.eviction import Eviction
from kvcache_sim.reference.store.refusals import HANDLES, in_order, numbered, refuse


class Leases(Eviction):
    """Holds paths for requests, reserves room for what they compute, and shares it."""

    @numbered
    def acquire(self, request: int, depth: int) -> int:
        """Hold the first blocks of a path on the GPU; return the lease."""
        tail = self._at(request, depth)
        self._there(tail, GPU)
        self._hold(GPU, tail)
        for block in tail.path():
            block.uses += 1
        handle = next(HANDLES)
        self.leases[handle] = Lease(request, tail, depth, self._tick(), found=depth)
        return handle

    @numbered
    def abandon(self, lease: int) -> None:
        """Take an acquisition back."""
        held = self._lease(lease)
        if held.reserved:
            raise refuse("blocks are reserved", "a lease without a reservation; release it")
        self._hold(GPU, held.tail, -1)
        for block in held.tail.path():
            block.uses -= 1
        held.live = False

    @numbered
    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold a path on a tier for a moment."""
        self._known_tier(tier)
        block = self._at(request, end)
        self._there(block, tier)
        self._hold(tier, block)
        handle = next(HANDLES)
        self.holds[handle] = tier, block
        return handle

    @numbered
    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        if hold not in self.holds or self.holds[hold][0] != tier:
            raise refuse("no such hold", "one that is held on this tier")
        block = self.holds.pop(hold)[1]
        self._hold(tier, block, -1)
        self._sweep_orphans(block)

    @numbered
    def depth(self, lease: int) -> int:
        """Return how many blocks a lease holds through the cache."""
        return self._lease(lease).depth

    @numbered
    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks."""
        return self.reserve_many([(lease, blocks)], now_ns)

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several leases, all or nothing."""
        for lease, _ in wanted:
            self._lease(lease)
        total = sum(n for _, n in wanted)
        pending = self._make_room(GPU, total, now_ns)
        if pending is None:
            return None
        late = sum(n for _, n in pending)
        self.tiers[GPU].active += total - late
        self.tiers[GPU].in_flight += late
        takers = [self.leases[lease] for lease, n in wanted for _ in range(n)]
        for lease, n in wanted:
            self.leases[lease].reserved += n
            self._admitted(self.leases[lease], now_ns)
        for move, n in pending:
            for _ in range(n):
                taker = takers.pop(0)
                taker.pending += 1
                self.moves[move].waiting.append(taker)
        return sorted({move for move, _ in pending})

    @numbered
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Share computed blocks; where the GPU has one already, ours is freed."""
        held = self._lease(lease)
        if to - held.depth > held.reserved - max(held.pending, held.loading):
            raise refuse("more blocks than are reserved and free", "a reservation first")
        times = (self.latest_ns, self.latest_ns) if ready is None else ready
        in_order(times)
        self.latest_ns = max(self.latest_ns, times[1])
        gpu = self.tiers[GPU]
        for depth in range(held.depth, to):
            key = self.keys.key(held.request, depth)
            block = held.tail.children.get(key)
            if block is None:
                block = self._add(held.tail, held.request, depth)
            gpu.active -= 1
            block.holds[GPU] += 1  # before it is ready: nothing may take it away
            self._use(block, held.access)
            if block.state[GPU] == ABSENT:
                block.access[GPU] = held.access
                self._set(block, GPU, READY)
                block.ready[GPU] = times
            else:
                gpu.free += 1
                self.merged_blocks += 1
            block.uses += 1
            held.tail = block
            held.reserved -= 1
        held.depth = max(held.depth, to)

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """End a lease, touch its path if releases do that, free its private blocks."""
        held = self._lease(lease)
        if held.loading:
            raise refuse("blocks are still being loaded", "its loads to have ended")
        self._told(now_ns)
        self._tick()
        computed = max(self.keys.full[held.request] - held.found, 0)
        for block in held.tail.path():
            block.holds[GPU] -= 1
            if self.touched_at == "release":
                self._stamp(block)
            self._let_go_of(block, (held.found, computed))
        now_free = held.reserved - held.pending
        self.tiers[GPU].active -= now_free
        self.tiers[GPU].free += now_free
        held.reserved = held.pending
        held.live = False

    @numbered
    def touch(self, request: int, end: int) -> None:
        """Make a path the most recently used."""
        path = self._path(request, end)
        self._tick()
        for block in reversed(path):
            self._stamp(block)
            self._let_go_of(block, (block.depth, 1))

    def _admitted(self, lease: Lease, now_ns: int) -> None:
        """An admission stands, and happens, once room is made for it."""
        if not lease.admitted:
            lease.admitted = True
            self.accessed_ns[lease.access] = now_ns
            for block in lease.tail.path():
                self._use(block, lease.access)

    def _use(self, block: Block, admission: int) -> None:
        """Make a block as recent as the admission that uses it, if admissions do that."""
        if self.touched_at == "admission":
            for tier in range(len(self.tiers)):
                if block.state[tier] != ABSENT:
                    block.access[tier] = max(block.access[tier], admission)

    def _stamp(self, block: Block) -> None:
        for tier in range(len(self.tiers)):
            if block.state[tier] == READY:
                block.access[tier] = self.clock

    def _let_go_of(self, block: Block, found_and_computed: tuple[int, int]) -> None:
        self._released(block, found_and_computed)
        self._refresh(block)

    @numbered
    def discard(self, request: int, start: int, end: int) -> None:
        """Discard a path from ``end`` up to ``start`` or to what is held, in flight or has children."""
        self._known_request(request)
        if start >= end:
            return
        for block in reversed(self._path(request, end)[start:]):
            if self._pinned(block) or block.children or IN_FLIGHT in block.state:
                return
            for tier in range(len(self.tiers)):
                if block.state[tier] == READY:
                    self._set(block, tier, ABSENT)
                    self.tiers[tier].free += 1
            self._discard_if_gone(block)

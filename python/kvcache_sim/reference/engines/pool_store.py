"""vLLM's block pool as a machine's store, in plain Python: the reference of the native ``PoolStore``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcache_sim.cache.records import Recorded
from kvcache_sim.cache.store import EVICT, GpuStore, Losses, Room
from kvcache_sim.reference.engines.vllm_pool import VllmPool
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.replay.block_keys import Key


class ReferencePoolStore(Recorded):
    """Leases, room and records over ``VllmPool``; a lease is its request. The GPU tier is the only one."""

    merged_blocks = 0

    def __init__(self, keys: ReferenceKeys, capacity_blocks: int) -> None:
        super().__init__()
        self.keys = keys
        self.pool = VllmPool(capacity_blocks)
        self.hits: dict[int, int] = {}
        self.keyed: dict[int, int] = {}

    def _names(self, request: int, blocks: int) -> list[Key]:
        return [(0, self.keys.key(request, k)) for k in range(blocks)]

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found; all of them are ready."""
        found = self.pool.peek(self._names(request, limit))
        return found, found

    def acquire(self, request: int, depth: int) -> int:
        """Note what a request found; it is held with its room."""
        self.hits[request] = self.keyed[request] = depth
        return request

    def abandon(self, lease: int) -> None:
        """Do nothing: nothing was held."""

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Hold what was found and take new blocks, or more blocks; None without effect when refused."""
        return self.reserve_many([(lease, blocks)], now_ns)

    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take new blocks for several leases, all or nothing."""
        if sum(n for _, n in wanted) > len(self.pool.free):
            return None
        before = len(self.pool.evicted)
        for lease, blocks in wanted:
            held = len(self.pool.held.get(lease, ()))
            if held:
                taken = self.pool.extend(lease, held + blocks)
            else:
                hits = self.hits[lease]
                taken = self.pool.allocate(lease, self._names(lease, hits), hits + blocks)
            if not taken:
                return None
        evicted = len(self.pool.evicted) - before
        if evicted:
            self._digest.record(EVICT, now_ns, 0, evicted)
            self._log_eviction(now_ns, 0, evicted)
        return []

    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Give a request's leading blocks their keys."""
        self.pool.cache(lease, self._names(lease, to))
        self.keyed[lease] = max(self.keyed[lease], to)

    def depth(self, lease: int) -> int:
        """Return how many leading blocks have been offered their keys."""
        return self.keyed[lease]

    def release(self, lease: int, now_ns: int) -> None:
        """Let go of a request's blocks."""
        self.pool.release(lease)
        self.keyed[lease] = 0

    def room(self, tier: int) -> Room:
        """Return (free without a key, held, free with a key, 0, free with a key)."""
        idle = sum(block in self.pool.key_of for block in self.pool.free)
        free = len(self.pool.free)
        return Room(free - idle, self.pool.capacity_blocks - free, idle, 0, idle)

    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) blocks."""
        return Losses(len(self.pool.evicted), 0, 0)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3), all recomputed from scratch."""
        pool = self.pool
        holds = Counter(block for blocks in pool.held.values() for block in blocks)
        for block, counted in pool.holders.items():
            if holds[block] != counted:
                raise RuntimeError(f"I3: block {block} counts {counted} holders, has {holds[block]}")
        idle = [block for block, counted in pool.holders.items() if not counted]
        if sorted(pool.free) != idle or len(pool.holders) != pool.capacity_blocks:
            raise RuntimeError(f"I2: {len(idle)} blocks have no holder, {len(pool.free)} are free")
        keyed = {block: key for key, blocks in pool.blocks_of.items() for block in blocks}
        if keyed != pool.key_of or not all(pool.blocks_of.values()):
            raise RuntimeError("a block is not found under its key")
        if pool.inserted != len(pool.evicted) + len(keyed):
            raise RuntimeError(f"I2: {pool.inserted} keys given, {len(keyed)} left")
        for lease, blocks in pool.held.items():
            names = self._names(lease, self.keyed[lease])
            if [pool.key_of.get(block) for block in blocks[: len(names)]] != names:
                raise RuntimeError(f"a leading block of request {lease} does not have its key")


if TYPE_CHECKING:

    def _fulfils(store: ReferencePoolStore) -> GpuStore:
        return store

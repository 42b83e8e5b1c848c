"""vLLM's block pool as a machine's store, in plain Python: the twin of the native ``PoolStore``."""

from __future__ import annotations

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
        """Raise RuntimeError when holders and free blocks do not add up (I2)."""
        held = sum(count > 0 for count in self.pool.holders.values())
        if held + len(self.pool.free) != self.pool.capacity_blocks:
            raise RuntimeError(f"I2: {held} held and {len(self.pool.free)} free blocks")


if TYPE_CHECKING:

    def _fulfils(store: ReferencePoolStore) -> GpuStore:
        return store

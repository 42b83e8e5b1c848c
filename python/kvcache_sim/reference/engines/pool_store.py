"""vLLM's block pool as a machine's store, in plain Python: the reference of the native ``PoolStore``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcache_sim.cache.store import GpuStore, Room
from kvcache_sim.reference.engines.leased_store import LeasedStore
from kvcache_sim.reference.engines.leases import EngineLeases
from kvcache_sim.reference.engines.vllm_pool import VllmPool
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import in_order, numbered, refuse
from kvcache_sim.replay.block_keys import Key


class ReferencePoolStore(LeasedStore):
    """Leases, room and records over ``VllmPool``, one lease a request. The GPU tier is the only one."""

    merged_blocks = 0

    def __init__(self, keys: ReferenceKeys, capacity_blocks: int) -> None:
        super().__init__()
        self.keys = keys
        self.pool = VllmPool(capacity_blocks)
        self.leases = EngineLeases(len(keys.full))
        self.keyed: dict[int, int] = {}

    def _names(self, request: int, blocks: int) -> list[Key]:
        return [(0, self.keys.key(request, k)) for k in range(blocks)]

    def _found(self, request: int, limit: int) -> int:
        missing = (k for k in range(limit) if (0, self.keys.key(request, k)) not in self.pool.blocks_of)
        return next(missing, limit)

    @numbered
    def idle_hits(self, request: int, hits: int) -> int:
        """Return how many of the first ``hits`` blocks found for a request nobody holds."""
        self.leases.known_request(request)
        blocks = [self.pool.blocks_of[key][0] for key in self._names(request, hits)]
        return sum(self.pool.holders[block] == 0 for block in blocks)

    def free_queue(self) -> list[int | None]:
        """Return the keys of the free blocks, next to be taken first; None where there is none."""
        return [None if key is None else key[1] for key in self.pool.free_queue()]

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take new blocks for several leases, all or nothing."""
        asked = self.leases.asked(wanted, self._found)
        if sum(n for _, n in asked) > len(self.pool.free):
            return None
        before = len(self.pool.evicted)
        for lease, blocks in asked:
            request, hits = lease.request, lease.hits
            if lease.is_admitted:
                self.pool.extend(request, len(self.pool.held[request]) + blocks)
            elif self.pool.allocate(request, self._names(request, hits), hits + blocks):
                lease.is_admitted, self.keyed[request] = True, hits
            else:
                return None
        self._note_evicted(len(self.pool.evicted) - before, now_ns)
        return []

    @numbered
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Give a request's leading blocks their keys."""
        in_order(ready or (0, 0))
        request = self.leases.admitted(lease).request
        if to > len(self.pool.held[request]):
            raise refuse("more blocks than are reserved and free", "a reservation first")
        self.pool.cache(request, self._names(request, to))
        self.keyed[request] = max(self.keyed[request], to)

    @numbered
    def depth(self, lease: int) -> int:
        """Return how many leading blocks were found or have been offered their keys."""
        held = self.leases.get(lease)
        return self.keyed[held.request] if held.is_admitted else held.hits

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Let go of a request's blocks."""
        ended = self.leases.end(lease)
        if ended.is_admitted:
            self.pool.release(ended.request)
            del self.keyed[ended.request]

    def _gpu_room(self) -> Room:
        """Return (free without a key, held, free with a key, 0, free with a key)."""
        idle = sum(block in self.pool.key_of for block in self.pool.free)
        free = len(self.pool.free)
        return Room(free - idle, self.pool.capacity_blocks - free, idle, 0, idle)

    def _gpu_evicted(self) -> int:
        return len(self.pool.evicted)

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

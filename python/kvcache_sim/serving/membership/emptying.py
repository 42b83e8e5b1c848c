"""A machine's caches emptied: a weight update, or a machine that was off and comes back."""

from __future__ import annotations

from kvcache_sim.cache.store import ALL_BLOCKS, GpuStore
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.tiers import COMPUTE


def empty_caches(replica: NativeReplica, tree: MarkingStore | None, requests: int) -> int:
    """Drop every copy on every tier that nobody holds at this moment; return how many blocks are gone.

    What running requests hold, and what is being read or written, stays. An engine's own cache is emptied
    only while nobody waits or runs there, as vLLM's ``reset_prefix_cache`` and SGLang's ``flush_cache`` have
    it, and its blocks count as evicted. Cost: a walk a request of the trace, or one call.
    """
    replica.catch_up(replica.engine.now_ns)
    if tree is None:
        if any(replica.counts()[:3]):
            return 0
        kept = int(store_kind(replica.cache).keeps_page_free and replica.cache.block_size_tokens > 1)
        return _evict_all(replica.store, kept, replica.engine.now_ns)
    gone = 0
    for request in range(requests):
        parts = tree.copies(request, ALL_BLOCKS)
        if parts:
            for tier in range(replica.tiers - 1, COMPUTE - 1, -1):
                gone += tree.remove(request, (0, parts[-1][0]), tier)
    return gone


def _evict_all(store: GpuStore, kept_free_blocks: int, now_ns: int) -> int:
    """Make room for all that can be had, and give it back."""
    room = store.room(COMPUTE)
    lease = store.acquire(0, 0)
    wanted = room.free_blocks + room.evictable_blocks - kept_free_blocks
    taken = store.reserve(lease, wanted, now_ns)
    assert taken is not None, "evictable blocks can be had"
    store.release(lease, now_ns)
    return room.evictable_blocks

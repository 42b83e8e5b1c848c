"""A shared pool node: memory without a GPU that all machines write and read (Mooncake's store)."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_sim.base.tiers import STAGING
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import ALL_BLOCKS, BlockRange
from kvcache_sim.cache.tree_store import MarkingStore


class PoolCounts(NamedTuple):
    """Blocks that machines put, read, could not put and hit so far, and bytes received."""

    put_blocks: int
    read_blocks: int
    refused_blocks: int
    hit_blocks: int
    written_bytes: int


class PoolNode:
    """The store that every machine writes blocks to and reads from, and its counts.

    The core moves its blocks (``rust/core/src/machine/pool.rs``); ``number``: its number among machines.
    """

    def __init__(self, number: int, tree: MarkingStore, cache: CacheSettings) -> None:
        self.number, self.tree = number, tree
        self.block_bytes, self.num_layers = cache.block_bytes, cache.num_layers
        #: Blocks that machines put here, blocks that they read, and blocks that did not fit.
        self.put_blocks = 0
        self.read_blocks = 0
        self.refused_blocks = 0
        #: Hit blocks of first admissions.
        self.hit_blocks = 0
        #: Blocks lost with the pool.
        self.lost_blocks = 0
        #: Blocks discarded while a live run emptied its caches.
        self.cleared_blocks = 0
        #: Bytes received over the pool's channel.
        self.written_bytes = 0

    def count(self, counts: PoolCounts) -> None:
        """Copy the core's counts."""
        self.put_blocks, self.read_blocks, self.refused_blocks = counts[:3]
        self.hit_blocks, self.written_bytes = counts.hit_blocks, counts.written_bytes

    def lose(self, requests: int) -> int:
        """Drop every copy that is not in flight; return the number of blocks lost.

        The pool is usable again at once. Cost: one walk per request of the trace.
        """
        before = self.lost_blocks
        for request in range(requests):
            found, _ = self.tree.peek(request, ALL_BLOCKS)
            if found:
                self.lost_blocks += self.tree.remove(request, BlockRange(0, found), STAGING)
        return self.lost_blocks - before

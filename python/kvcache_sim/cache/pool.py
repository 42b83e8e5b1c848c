"""A shared pool node: memory without a GPU that all machines write and read (Mooncake's store)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.store import ALL_BLOCKS, NO_MOVE
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.tiers import STAGING


class PoolNode:
    """A store that every machine puts its blocks into and reads from, each way over the pool's own channel.

    What a machine writes down from its GPU is put here once it lies where that machine stages KV, unless it
    is here already; so the write policy of the GPU's edge decides what comes. A put is a read by the pool:
    it waits on the channel, and its source is kept until it has been read. A block is found once it is on
    its way here, and read when it has come. A read makes a path recent; eviction is the pool's own.
    ``movers``: those of the machines, by number, also of machines built later.
    """

    def __init__(
        self, mover: Mover, tree: MarkingStore, movers: Mapping[int, Mover], channels: Channels
    ) -> None:
        self.mover = mover
        self.tree = tree
        self._movers = movers
        self._puts = RemoteReads(mover, tree, movers, channels, staged=False)
        #: Blocks that machines put here, that they read, and whose place was refused.
        self.put_blocks = 0
        self.read_blocks = 0
        self.refused_blocks = 0
        #: Blocks of first admissions that came from here.
        self.hit_blocks = 0
        #: Blocks that were here when the pool was lost.
        self.lost_blocks = 0

    def take_from(self, mover: Mover) -> None:
        """Put here what a machine writes down from its GPU from now on."""
        mover.when_written_down(partial(self.put, mover.machine))

    def put(self, machine: int, request: int, end: int) -> None:
        """Put the first ``end`` blocks of a request here, as far as they are missing and ready over there."""
        there = self._movers[machine]
        start, _ = self.tree.peek(request, end)
        reached = start
        assert there.tree is not None, "what has tiers to write down to keeps a tree"
        for tier, first, last, by in there.tree.match_below(request, start, end):
            if tier != STAGING or by != NO_MOVE or first != reached:
                break
            reached = last
        if reached == start:
            return
        part = STAGING, start, reached, NO_MOVE
        if self._puts.fetch(request, machine, part, self.mover.engine.now_ns) is None:
            self.refused_blocks += reached - start
        else:
            self.put_blocks += reached - start
        self.mover.issue()

    def was_read(self, request: int, blocks: tuple[int, int]) -> None:
        """Hear that a machine reads blocks (first, past the last) of a request: their path is recent."""
        start, end = blocks
        self.tree.touch(request, end)
        self.read_blocks += end - start

    def was_hit(self, blocks: int) -> None:
        """Hear that a request's first admission reuses so many blocks of the pool."""
        self.hit_blocks += blocks

    def counted(self, blocks: tuple[int, int, int, int], written_bytes: int) -> None:
        """Hear of blocks put, read, refused and hit so far, and bytes that came, from the core."""
        self.put_blocks, self.read_blocks, self.refused_blocks, self.hit_blocks = blocks
        self.mover.written_bytes[STAGING] = written_bytes

    def lose(self, requests: int) -> int:
        """Drop every copy that is not on its way at this moment; return how many blocks are gone.

        The pool is there again at once. Cost: a walk a request of the trace.
        """
        before = self.lost_blocks
        for request in range(requests):
            found, _ = self.tree.peek(request, ALL_BLOCKS)
            if found:
                self.lost_blocks += self.tree.remove(request, (0, found), STAGING)
        return self.lost_blocks - before

"""A pool that machines share, in the core: it takes what they put, and gives what they read."""

from __future__ import annotations

from kvcache_sim import _core
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.serving.replica.native_rules import PoolRules


class SharedPool:
    """The core's part of a pool: a machine that no request comes to.

    ``cache/pool.py`` holds the same rules in Python, and what the run counts of it.
    """

    def __init__(self, node: PoolNode) -> None:
        assert isinstance(node.tree, _core.Store)
        self._node = node
        self.core = _core.Replica.of_pool(node.tree, PoolRules.of(node))

    def count(self, hit_blocks: int) -> None:
        """Tell the pool what it took and gave so far; ``hit_blocks``: those of first admissions."""
        put, read, refused, written_bytes = self.core.pool_counts()
        self._node.counted((put, read, refused, hit_blocks), written_bytes)

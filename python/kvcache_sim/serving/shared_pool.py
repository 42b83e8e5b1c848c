"""A pool that machines share, in the core: it takes what they put, and gives what they read."""

from __future__ import annotations

from kvcache_sim import _core
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.serving.replica.native_rules import PoolRules


class SharedPool:
    """The core's part of a pool: a machine that no request comes to."""

    def __init__(self, node: PoolNode, movement: MovementSettings) -> None:
        assert isinstance(node.tree, _core.Store)
        self._node = node
        self.core = _core.Replica.of_pool(node.tree, PoolRules.of(node, movement))

    def count(self, hit_blocks: int) -> None:
        """Count what the pool took and gave so far; ``hit_blocks``: those of first admissions."""
        put, read, refused, written_bytes = self.core.pool_counts()
        self._node.count((put, read, refused, hit_blocks), written_bytes)

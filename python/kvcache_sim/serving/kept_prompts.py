"""The blocks that machines keep of finished requests, as hints and quotas drop them."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.store import ALL_BLOCKS
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.replica.native import NativeReplica


class KeptPrompts:
    """The machines of a cluster and their trees of blocks, each brought to the engine's time on access.

    ``trees``: None where blocks have no names; a scenario refuses hints and quotas there.
    """

    def __init__(self, replicas: Sequence[NativeReplica], trees: Sequence[MarkingStore | None]) -> None:
        self.replicas, self._trees = replicas, trees
        self.engine = replicas[0].engine
        self.block_size_tokens = replicas[0].cache.block_size_tokens

    def tree(self, machine: int) -> MarkingStore:
        """Return a machine's current tree."""
        tree = self._trees[machine]
        assert tree is not None, "refused where blocks have no names"
        self.replicas[machine].catch_up(self.engine.now_ns)
        return tree

    def drop(self, machine: int, request: int, first_block: int) -> int:
        """Drop a prompt's blocks from ``first_block`` on, on every tier; return the number of copies."""
        tree = self.tree(machine)
        parts = tree.copies(request, ALL_BLOCKS)
        if not parts or parts[-1][0] <= first_block:
            return 0
        tiers = range(self.replicas[machine].tiers - 1, -1, -1)
        return sum(tree.remove(request, (first_block, parts[-1][0]), tier) for tier in tiers)

"""The blocks that machines keep of finished requests, as hints and quotas drop them."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.store import BlockRange
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.workload.trace import Trace, view


class KeptPrompts:
    """The machines of a cluster and their trees of blocks, each brought to the engine's time on access.

    ``trees``: None where blocks have no names; a scenario refuses hints and quotas there.
    """

    def __init__(
        self, replicas: Sequence[NativeReplica], trees: Sequence[MarkingStore | None], trace: Trace
    ) -> None:
        self.replicas, self._trees = replicas, trees
        self.engine = replicas[0].engine
        cache = replicas[0].cache
        self.block_size_tokens = cache.block_size_tokens
        tokens = trace.kv_tokens if cache.cache_output else trace.input_tokens
        self._blocks = view(tokens // cache.block_size_tokens)

    def tree(self, machine: int) -> MarkingStore:
        """Return a machine's current tree."""
        tree = self._trees[machine]
        assert tree is not None, "refused where blocks have no names"
        self.replicas[machine].catch_up(self.engine.now_ns)
        return tree

    def left(self, machine: int, request: int) -> tuple[MarkingStore, list[tuple[int, list[int]]]]:
        """Return a machine's tree, and what it still has of the blocks that a request left there, in parts.

        A part is (past the last block, on each tier the move writing it). Blocks that only a later turn adds
        are not among them.
        """
        tree = self.tree(machine)
        return tree, tree.copies(request, self._blocks[request])

    def drop(self, machine: int, request: int, first_block: int) -> int:
        """Drop a request's blocks from ``first_block`` on, on every tier; return the number of copies."""
        tree, parts = self.left(machine, request)
        if not parts or parts[-1][0] <= first_block:
            return 0
        tiers = range(self.replicas[machine].tiers - 1, -1, -1)
        return sum(tree.remove(request, BlockRange(first_block, parts[-1][0]), tier) for tier in tiers)

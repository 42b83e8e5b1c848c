"""T-LRU: blocks go first that a conversation does not need to stay within its limit of uncached blocks.

Source: arXiv 2510.15152 (NeurIPS'25), Algorithm 1, as SGLang 0.5.23 reads it (``tlru`` of
``srt/mem_cache/evict_policy.py``), in blocks.
"""

from __future__ import annotations

from collections.abc import Hashable

from kvcache_sim.replay.papers.leaf_cache import Asked, Node


class TailLru:
    """A leaf is safe to evict while the blocks left before it are at least history + next prompt − limit.

    ``limit_blocks`` (ξ): the most uncached blocks that a request may have; ``next_blocks`` (Q̂): what the next
    prompt adds. History is the deepest block that the branch ever had. Safe ones go first, each kind by LRU.
    """

    def __init__(self, limit_blocks: int, next_blocks: int) -> None:
        self._spare = limit_blocks - next_blocks

    def used(self, node: Node, asked: Asked) -> None:
        """Note nothing beside the branch's depth, which the cache keeps."""

    def label(self, node: Node) -> Hashable:
        """Return whether the leaf may go without harm."""
        return node.depth - 1 >= max(node.high_water - self._spare, 0)

    def worth(self, label: Hashable, oldest: Node, now_ns: int) -> float:
        """Return 0 for a leaf that may go."""
        del oldest, now_ns
        return 0.0 if label else 1.0

"""T-LRU on a tier of a timed run: evicts first the tails that a conversation can lose within its limit.

``tiers.gpu.policy: kvcache_sim.policies.tail_lru:TailLru(limit_blocks=16, next_blocks=8)``. Source: arXiv
2510.15152 (NeurIPS'25), Algorithm 1, as SGLang 0.5.23 reads it.
"""

from __future__ import annotations

from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.plugins.priority import PriorityPolicy
from kvcache_sim.policies.plugins.views import BlockView, TierView


class TailLru(PriorityPolicy):
    """A leaf is preferred if the blocks before it number at least history + next prompt - limit.

    ``limit_blocks``: the most uncached blocks that a request may have; ``next_blocks``: blocks that the next
    prompt adds. History is the greatest length in blocks that the branch ever had; it outlives evictions.
    Preferred leaves are evicted first; ties are resolved by LRU. Raises UsageError unless ``limit_blocks`` is
    greater than ``next_blocks``.
    """

    name = "tail-lru"

    def __init__(self, tier: TierView, limit_blocks: int = 16, next_blocks: int = 8) -> None:
        del tier
        if not limit_blocks > next_blocks >= 0:
            raise UsageError(
                "no leaf could ever be preferred",
                where="TailLru",
                got=f"limit_blocks={limit_blocks}, next_blocks={next_blocks}",
                expected="limit_blocks above next_blocks",
            )
        super().__init__(self._key)
        self._spare = limit_blocks - next_blocks
        #: Greatest length in blocks of each block's branch, the block itself included.
        self._history: dict[int, int] = {}

    def _key(self, b: BlockView, now: int) -> tuple[bool, int]:
        history = self._history.get(b.id, b.depth + 1)
        return b.depth < max(history - self._spare, 0), b.last_use

    def on_insert(self, b: BlockView, now: int) -> None:
        """Record the length of the branch, the deepest block first."""
        self._deepen(b)
        super().on_insert(b, now)

    def on_hit(self, b: BlockView, now: int) -> None:
        """Pass the length of the branch to the block before it."""
        self._deepen(b)
        super().on_hit(b, now)

    def _deepen(self, b: BlockView) -> None:
        history = self._history[b.id] = max(self._history.get(b.id, 0), b.depth + 1)
        if b.parent >= 0:
            self._history[b.parent] = max(self._history.get(b.parent, 0), history)

    def on_remove(self, b: BlockView, now: int) -> None:
        """Remove a block."""
        self._history.pop(b.id, None)
        super().on_remove(b, now)

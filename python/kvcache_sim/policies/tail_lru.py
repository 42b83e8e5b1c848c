"""T-LRU on a tier of a timed run: tails go first that a conversation can lose and stay within its limit.

``tiers.gpu.policy: kvcache_sim.policies.tail_lru:TailLru(limit_blocks=16, next_blocks=8)``. Source: arXiv
2510.15152 (NeurIPS'25), Algorithm 1, as SGLang 0.5.23 reads it.
"""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.policies.plugins.priority import PriorityPolicy
from kvcache_sim.policies.plugins.views import BlockView, TierView


class TailLru(PriorityPolicy):
    """A leaf may go while the blocks left before it are at least history + next prompt - limit.

    ``limit_blocks``: the most uncached blocks that a request may have; ``next_blocks``: what the next prompt
    adds. History is the deepest block that the branch ever had; it stays when that goes. Leaves that may go
    are first, each kind by LRU. Raises UsageError unless ``limit_blocks`` is more than ``next_blocks``.
    """

    name = "tail-lru"

    def __init__(self, tier: TierView, limit_blocks: int = 16, next_blocks: int = 8) -> None:
        del tier
        if not limit_blocks > next_blocks >= 0:
            raise UsageError(
                "nothing could ever go first",
                where="TailLru",
                got=f"limit_blocks={limit_blocks}, next_blocks={next_blocks}",
                expected="limit_blocks above next_blocks",
            )
        super().__init__(self._key)
        self._spare = limit_blocks - next_blocks
        #: By block the deepest that its branch ever had, itself counted.
        self._history: dict[int, int] = {}

    def _key(self, b: BlockView, now: int) -> tuple[bool, int]:
        history = self._history.get(b.id, b.depth + 1)
        return b.depth < max(history - self._spare, 0), b.last_use

    def on_insert(self, b: BlockView, now: int) -> None:
        """Note how deep the branch is, the deepest block first."""
        self._deepen(b)
        super().on_insert(b, now)

    def on_hit(self, b: BlockView, now: int) -> None:
        """Tell the block before it how deep the branch is."""
        self._deepen(b)
        super().on_hit(b, now)

    def _deepen(self, b: BlockView) -> None:
        history = self._history[b.id] = max(self._history.get(b.id, 0), b.depth + 1)
        if b.parent >= 0:
            self._history[b.parent] = max(self._history.get(b.parent, 0), history)

    def on_remove(self, b: BlockView, now: int) -> None:
        """Forget a block."""
        self._history.pop(b.id, None)
        super().on_remove(b, now)

"""An unmodified vLLM offloading ``CachePolicy``, called as vLLM's manager calls it."""

from __future__ import annotations

import inspect
from collections.abc import Container, Sequence
from typing import Any

from kvcache_sim.policies.plugins.stand_ins import BlockStatus
from kvcache_sim.policies.plugins.views import BlockView


class VllmPolicy:
    """Keys are block ids; a parent may leave before its children, as in vLLM's own CPU tier.

    ``evict`` chooses and removes in one call, so the removal is complete when ``victims`` returns. A new
    block is made readable after the request's blocks were touched, as in vLLM (else ARC would count the
    insertion as a second use).
    """

    allow_holes = True
    takes_victims = True

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        context = "req_context" in inspect.signature(policy.touch).parameters
        self.context: tuple[Any, ...] = (None,) if context else ()

    def begin(self, missing: Sequence[int], now: int) -> None:
        """Offer the keys that will be stored: ghosts answer."""
        self.policy.touch(list(missing), *self.context)

    def victims(self, n: int, now: int, pinned: Container[int]) -> list[int] | None:
        """Evict exactly n blocks, or none."""
        found = self.policy.evict(n, pinned)
        return None if found is None else [key for key, _ in found]

    def on_insert(self, b: BlockView, now: int) -> None:
        """Store a block, not readable yet."""
        self.policy.insert(b.id, BlockStatus(b.id))

    def on_hit(self, b: BlockView, now: int) -> None:
        """Nothing: the request's blocks are touched together at its end."""

    def on_remove(self, b: BlockView, now: int) -> None:
        """Nothing: evict removed it."""

    def end(self, path: Sequence[int], inserted: Sequence[int], now: int) -> None:
        """Touch the request's blocks and make the new ones readable."""
        self.policy.touch(list(path), *self.context)
        for key in inserted:
            status = self.policy.get(key)
            if status is not None:
                status.ref_cnt = 0
            if hasattr(self.policy, "mark_evictable"):
                self.policy.mark_evictable(key)

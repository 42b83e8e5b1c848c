"""The plain store of ``spec/`` with rules and calls of the core's store that no seed asks for.

With ``touch: admission`` an admission makes blocks recent once space was made for it, and no release does. An
eviction takes ``eviction_batch_blocks`` at least. ``write_selected`` copies what was used often,
``drop_copy`` ends a lower copy after a load, ``moved_paths`` lists what a move writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim.simulation.spec_simulation import SpecSimulation
from kvcache_sim.spec.blocks import ABSENT, READY, Block, Lease
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.store import Store


class WholeStore(Store):
    """The plain store; ``touch`` and ``eviction_batch_blocks`` are the settings of ``cache``."""

    def __init__(
        self,
        keys: Keys,
        capacities: Sequence[int | None],
        write_back: Sequence[bool],
        policies: Sequence[str] | None = None,
        touch: str = "release",
        eviction_batch_blocks: int = 1,
    ) -> None:
        super().__init__(keys, capacities, write_back, policies)
        self._touched_at_admission = touch == "admission"
        self.eviction_batch_blocks = eviction_batch_blocks

    def _evict(self, tier: int, wanted: int, now_ns: int) -> int:
        return super()._evict(tier, max(wanted, self.eviction_batch_blocks), now_ns)

    # -- touch: admission

    def _on_admission(self, held: Lease, now_ns: int) -> None:
        first = not held.admitted
        super()._on_admission(held, now_ns)
        if first:
            self._on_use(list(reversed(held.path)), held.access)

    def _lengthen(self, held: Lease, blocks: list[Block]) -> None:
        super()._lengthen(held, blocks)
        self._on_use(blocks, held.access)

    def _on_use(self, blocks: list[Block], admission: int) -> None:
        """Make blocks as recent as the admission that uses them, where admissions do that."""
        for block in blocks if self._touched_at_admission else ():
            for copy in block.copies:
                if copy.state != ABSENT and copy.last_access < admission:
                    copy.last_access = admission
                    if copy.evictable:
                        self._offer(block, copy.tier)

    def _on_release(self, path: list[Block]) -> None:
        if not self._touched_at_admission:
            super()._on_release(path)
            return
        access = self._count_access()
        for block in reversed(path):
            for copy in block.copies:
                if copy.state == READY:
                    self.orders[copy.tier].on_release(block, access, self.now_ns)
                    if copy.evictable:
                        self._offer(block, copy.tier)

    # -- writes, copies, moves

    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy what the lease holds and ``uses`` requests have used one tier down."""
        often = [
            block
            for block in self._lease(lease).path
            if block.uses >= uses
            and block.copies[tier].state == READY
            and block.copies[tier + 1].state == ABSENT
        ]
        return self._copy_down(tier, often, often[-1:], now_ns)

    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop lower copies that have no user and are not the last, after a load over an exclusive edge."""
        for block in reversed(self._part(request, start, end)):
            copy = block.copies[tier]
            elsewhere = any(c.state != ABSENT for c in block.copies if c is not copy)
            if copy.state == READY and not copy.ref_count and elsewhere:
                self._set_state(block, tier, ABSENT)
                self.tiers[tier].free += 1

    def moved_paths(self, move: int) -> list[tuple[int, int]]:
        """Return the paths that a move writes, each as (request, past its last block), the longest first."""
        blocks = self._under_way(move).blocks
        continued = {block.parent for block in blocks}
        ends = sorted((b for b in blocks if b not in continued), key=lambda b: (-b.depth, b.key))
        return [(block.request, block.depth + 1) for block in ends]


class WholeStoreSimulation(SpecSimulation):
    """A simulation over this store, where it is over a plain one."""

    def _plain_store(self, *parts: Any) -> Store:
        cache = self.settings.cache
        return WholeStore(*parts, cache.touch, cache.eviction_batch_blocks)

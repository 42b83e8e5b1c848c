"""Selective writing: a block goes down at its n-th use (HiCache's write_through_selective)."""

from __future__ import annotations

from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.cache.write.back import WriteBack


class WriteSelective(WriteBack):
    """Copies what ``write_selective_uses`` requests have used; a victim never written is discarded.

    Computing a block is its first use.
    """

    writes_back = False

    def used(self, store: TieredStore, lease: int, now_ns: int) -> int | None:
        """Copy what has now been used often enough."""
        return store.write_selected(lease, self.upper, self.settings.write_selective_uses, now_ns)

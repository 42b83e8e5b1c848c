"""Write back: a block goes down when it is evicted, where there is no copy below."""

from __future__ import annotations

from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.tree_store import TieredStore


class WriteBack:
    """Copies nothing ahead of an eviction."""

    writes_back = True
    at_commit = False
    delays_step = False

    def __init__(self, upper: int, settings: MovementSettings) -> None:
        self.upper = upper
        self.settings = settings

    def committed(self, store: TieredStore, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Send nothing."""
        return None

    def used(self, store: TieredStore, lease: int, now_ns: int) -> int | None:
        """Send nothing."""
        return None

    def arrived(self, store: TieredStore, move: int, now_ns: int) -> int | None:
        """Send nothing."""
        return None

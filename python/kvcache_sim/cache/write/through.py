"""Write through: a block goes down as soon as it is there, behind the batch or delaying it."""

from __future__ import annotations

from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.cache.write.back import WriteBack


class WriteThrough(WriteBack):
    """Copies at commit (gpu) or arrival (cpu), asynchronously; where there is no room, at eviction."""

    def __init__(self, upper: int, settings: MovementSettings) -> None:
        super().__init__(upper, settings)
        self.at_commit = upper == 0

    def committed(self, store: TieredStore, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Copy what was computed."""
        return store.write_through(lease, *blocks, now_ns)

    def arrived(self, store: TieredStore, move: int, now_ns: int) -> int | None:
        """Copy what arrives."""
        return store.write_on(move, now_ns)


class WriteThroughSync(WriteThrough):
    """As WriteThrough, and the next step waits until the copy is below."""

    delays_step = True

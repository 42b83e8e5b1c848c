"""What a write policy is: told what became ready on the upper tier of its edge, it may copy it down."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.tree_store import TieredStore


class WritePolicy(Protocol):
    """The write policy of one edge. A method that copies returns the move, None where nothing was sent."""

    #: Whether a victim without a copy below is written there at its eviction; else it is discarded.
    writes_back: bool
    #: Whether ``committed`` wants to be told: every commit then ends the stretch of iterations.
    at_commit: bool
    #: Whether the next step waits for what ``committed`` sent.
    delays_step: bool

    def committed(self, store: TieredStore, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Blocks [first, past the last) of a lease were computed and are shared now (edge of the gpu)."""
        ...

    def used(self, store: TieredStore, lease: int, now_ns: int) -> int | None:
        """A request was admitted and holds what it reuses."""
        ...

    def arrived(self, store: TieredStore, move: int, now_ns: int) -> int | None:
        """A copy from another tier is about to become ready on the upper tier (edge of the cpu)."""
        ...

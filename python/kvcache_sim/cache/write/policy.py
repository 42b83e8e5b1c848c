"""The contract of a write policy: notified of blocks on the upper tier of its edge, it may copy them down."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.tree_store import TieredStore


class WritePolicy(Protocol):
    """The write policy of one edge. Its methods return the move of a copy, None if nothing was sent.

    Args of the methods: ``store`` copies blocks down (``write_through``, ``write_selected``, ``write_on``);
    ``lease`` and ``move`` are numbers of the store; ``now_ns`` is the current time in ns.
    """

    #: True if a victim without a copy below is written there at its eviction; else it is discarded.
    writes_back: bool
    #: True if ``committed`` is called for every commit; a commit then ends the step run.
    at_commit: bool
    #: True if the next step waits for the copies that ``committed`` sent.
    delays_step: bool

    def committed(self, store: TieredStore, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Called when blocks of a lease were computed and became shared (edge of the gpu).

        Args:
            store: The store of the machine.
            lease: The request's lease.
            blocks: (first, past the last) block that became shared.
            now_ns: Current time, in ns.

        Returns:
            The move of the copy, None if nothing was sent.
        """
        ...

    def used(self, store: TieredStore, lease: int, now_ns: int) -> int | None:
        """Called when a request was admitted and its lease holds the blocks that it reuses."""
        ...

    def arrived(self, store: TieredStore, move: int, now_ns: int) -> int | None:
        """Called before a copy from another tier becomes ready on the upper tier (edge of the cpu)."""
        ...

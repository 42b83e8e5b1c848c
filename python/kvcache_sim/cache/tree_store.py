"""The contracts of a tree of blocks over any number of tiers: its moves, and marks by hand."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.store import LoadingStore

#: In ``copies``: a tier without a copy.
NO_COPY = 0xFFFF_FFFE


class TieredStore(LoadingStore, Protocol):
    """A tree of blocks over any number of tiers: found parts, moves between tiers, recency by hand."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return the found run in parts: (past the last block, holders, access on the fastest tier)."""
        ...

    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the run from block ``start`` on that is found below the GPU, in parts."""
        ...

    def touch(self, request: int, end: int) -> None:
        """Make the first ``end`` blocks the most recently used."""
        ...

    def discard(self, request: int, start: int, end: int) -> None:
        """Discard a path from ``end`` up to ``start`` or to what is held, in flight or has children."""
        ...

    def expire(self, now_ns: int) -> None:
        """Discard what its tier's policy keeps no longer (``ttl``)."""
        ...

    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks one tier up, making room there first; return the move, None without room."""
        ...

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy blocks from the GPU to the CPU; return the move, None when there is nothing to send."""
        ...

    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy what the lease holds and ``uses`` requests have used one tier down; return the move."""
        ...

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy what a move is about to make ready one tier further down; call it before ``finish_move``."""
        ...

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for another machine, until the move is finished."""
        ...

    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Land blocks of another machine on the CPU; return the move, None when that is refused."""
        ...

    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop lower copies after a load over an exclusive edge."""
        ...


class MarkingStore(TieredStore, Protocol):
    """A store whose room and copies can also be marked by hand, and every copy of a block told.

    A claim is room on a tier, and a move like any other once blocks are placed in it: ``finish_move`` makes
    them ready.
    """

    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        """Return the found run in parts: (past the last block, on each tier the move writing it).

        ``NO_MOVE`` is a ready copy, ``NO_COPY`` none. Changes nothing.
        """
        ...

    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """Return the found run in parts: (past the last block, copies from fast to slow).

        A copy is (tier, move writing it, first layer ready, all ready, last access), times in ns, 2^62 for
        one that is not known yet. Changes nothing.
        """
        ...

    def moved_paths(self, move: int) -> list[tuple[int, int]]:
        """Return the paths that a move writes, as (request, past the last block), each to its deepest block.

        The longest first, then by the last block's key.
        """
        ...

    def claim(self, tier: int, blocks: int, now_ns: int) -> tuple[int, list[int]] | None:
        """Take room on a tier, evicting the shortfall: the claim, and the moves that must end first.

        None when that is refused.
        """
        ...

    def release_claim(self, claim: int) -> None:
        """Give claimed room back that no block was placed in."""
        ...

    def fill_claim(self, claim: int, request: int, part: tuple[int, int], source: int | None) -> bool:
        """Mark blocks as being written into a claim of their size, read from a tier that holds them.

        False, nothing changed, where one is there already, is not on the source, or does not follow a block
        that is found (on the GPU: that is there).
        """
        ...

    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        """Mark blocks absent from a tier, last first, as far as nothing keeps them; return how many."""
        ...

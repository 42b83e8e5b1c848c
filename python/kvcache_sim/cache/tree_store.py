"""The contracts of a tree of blocks over any number of tiers: its moves, and manual marks."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.store import BlockRange, LoadingStore

#: In ``copies``: a tier without a copy.
NO_COPY = 0xFFFF_FFFE


class TieredStore(LoadingStore, Protocol):
    """A tree of blocks over any number of tiers: found parts, moves between tiers, explicit recency."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return the found run in parts: (past the last block, leases, access on the fastest tier)."""
        ...

    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the run from block ``start`` on below the GPU, in parts."""
        ...

    def touch(self, request: int, end: int) -> None:
        """Make the first ``end`` blocks the most recently used."""
        ...

    def discard(self, request: int, start: int, end: int) -> None:
        """Discard a path from ``end`` back to ``start``, or to a block held, in flight or with children."""
        ...

    def expire(self, now_ns: int) -> None:
        """Discard the blocks whose time to live has passed (policy ``ttl``)."""
        ...

    def stage(
        self, request: int, part: BlockRange, to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks one tier up, after evictions there; return the move, None if they do not fit."""
        ...

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy blocks from the GPU to the CPU; return the move, None if there is nothing to send."""
        ...

    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy the lease's blocks that ``uses`` requests have used one tier down; return the move."""
        ...

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy the blocks of a move one tier further down; call it before ``finish_move``."""
        ...

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for another machine, until the move is finished."""
        ...

    def receive(self, request: int, part: BlockRange, now_ns: int) -> int | None:
        """Store blocks of another machine on the CPU; return the move, None if refused."""
        ...

    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop lower copies after a load over an exclusive edge."""
        ...


class MarkingStore(TieredStore, Protocol):
    """A store with manual claims and marks, and with the listing of every copy of a block.

    A claim is a number of blocks reserved on a tier. Once blocks are written into it, it is a move like any
    other: ``finish_move`` makes them ready.
    """

    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        """Return the found run in parts: (past the last block, on each tier the move writing it).

        ``NO_MOVE`` is a ready copy, ``NO_COPY`` none. Changes nothing.
        """
        ...

    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """Return the found run in parts: (past the last block, copies from fast to slow).

        A copy is (tier, move writing it, first layer ready, all ready, last access), times in ns, 2^62 for an
        unknown time. Changes nothing.
        """
        ...

    def moved_paths(self, move: int) -> list[tuple[int, int]]:
        """Return the paths that a move writes, as (request, past the last block), each to its deepest block.

        The longest path comes first, then by the last block's key.
        """
        ...

    def claim(self, tier: int, blocks: int, now_ns: int) -> tuple[int, list[int]] | None:
        """Reserve blocks on a tier, evicting the shortfall.

        Returns:
            The claim, and the moves that must finish first; None if refused.
        """
        ...

    def release_claim(self, claim: int) -> None:
        """Release a claim without blocks in it."""
        ...

    def fill_claim(self, claim: int, request: int, part: BlockRange, source: int | None) -> bool:
        """Mark blocks as being written into a claim of their size, read from a tier that holds them.

        Returns False and changes nothing if a block is on the tier already, is not on the source, or does not
        follow a found block (on the GPU: a block on the GPU).
        """
        ...

    def remove(self, request: int, part: BlockRange, tier: int) -> int:
        """Mark blocks absent from a tier, last first, up to the first that must stay; return their number."""
        ...

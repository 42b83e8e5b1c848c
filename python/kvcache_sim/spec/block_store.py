"""The block store as the specification uses it: the interface of its own store and of the core's (seed 001).

Blocks are named by a request and their index in its path. A lease is what a running request holds on the GPU.
A move is a transmission between tiers; blocks that it frees or writes are there once it is finished. The
mover takes the moves that calls have decided with ``take_orders``, and sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kvcache_sim.cache.store import BlockRange, EvictionCounts, Occupancy, OrderFields, Times, Wanted


class Away(NamedTuple):
    """The location of another machine's blocks."""

    owner: int
    tier: int


class Found(NamedTuple):
    """Blocks that a store has found: their fastest tier, and the move that still writes them there."""

    tier: int
    start: int
    end: int
    by: int


class Part(NamedTuple):
    """A part of a run to reuse: blocks found here, or on another machine (REMOTE)."""

    tier: int
    start: int
    end: int
    by: int
    #: For REMOTE: the machine and the tier there.
    away: Away | None = None


class BlockStore(Protocol):
    """The blocks of one machine: lookups, leases, moves, and its records."""

    # -- lookups change nothing

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return the number of leading blocks found, at most ``limit``, and the number ready on the GPU."""

    def match_prefix(self, request: int, limit: int) -> Sequence[tuple[int, int, int, int]]:
        """Return the found run in parts: the fields of ``Found``."""

    def match_below(self, request: int, start: int, limit: int) -> Sequence[tuple[int, int, int, int]]:
        """Return the run from block ``start`` on with copies below the GPU, in parts as well."""

    def depth(self, lease: int) -> int:
        """Return the number of cached blocks that a lease holds."""

    def occupancy(self, tier: int) -> Occupancy:
        """Return the use of a tier's blocks."""

    def eviction_counts(self, tier: int) -> EvictionCounts:
        """Return the blocks that have left a tier so far."""

    # -- leases

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks on the GPU; return the lease."""

    def abandon(self, lease: int) -> None:
        """Undo an acquisition without an effect on recency."""

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks; return the moves that must finish before, None if refused."""

    def reserve_many(self, wanted: Sequence[Wanted], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several leases, all or nothing."""

    def commit(self, lease: int, to: int, ready: Times | None = None) -> None:
        """Share the lease's computed blocks up to ``to``."""

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease and make its path recent."""

    # -- moves

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's blocks up to ``to`` from the CPU into reserved blocks; return the move."""

    def join(self, lease: int, to: int) -> None:
        """Hold blocks up to ``to`` that another request is loading."""

    def stage(
        self, request: int, part: BlockRange, to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy blocks up to a tier for a load; return the move, None without space."""

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy a lease's blocks that the CPU lacks to it; return the move, None without one."""

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy the blocks of a move one tier further down; return the move, None without one."""

    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier until the returned move is finished."""

    def receive(self, request: int, part: BlockRange, now_ns: int) -> int | None:
        """Store blocks of another machine on the CPU; return the move, None if refused."""

    def take_orders(self) -> Sequence[OrderFields]:
        """Return the transmissions decided since the last call."""

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Set the ready times of the blocks that a move writes."""

    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready, end its uses, and free the space that it blocked."""

    def expire(self, now_ns: int) -> None:
        """Discard the copies whose tier's time to live has passed."""

    def duplicates(self, tier: int) -> int:
        """Return the number of a tier's blocks with a copy on a faster tier too."""

    # -- records

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""

    @property
    def merged_blocks(self) -> int:
        """Blocks computed twice and merged."""

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""

    @property
    def digest(self) -> int:
        """The rolling hash of all records so far."""

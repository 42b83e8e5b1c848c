"""The contracts of a machine's block store: what a lone GPU needs, and what lower tiers add."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvcache_sim.errors import InvariantError

#: No move: a block that is ready.
NO_MOVE = 0xFFFF_FFFF
#: As a limit, more blocks than any prompt has.
ALL_BLOCKS = 1 << 30

#: A transmission to send: (move, from tier, to tier, blocks, moves that must end first).
Order = tuple[int, int, int, int, list[int]]


class Occupancy(NamedTuple):
    """How the blocks of a tier are used: the first four sum to its capacity."""

    free_blocks: int
    #: Private to running requests.
    active_blocks: int
    #: Shared, whether held or not.
    cached_blocks: int
    #: Being written, or not to be used before a write of their content has ended.
    in_flight_blocks: int
    #: Of the cached blocks those that nobody holds.
    evictable_blocks: int

    @property
    def capacity_blocks(self) -> int:
        """All blocks of the tier."""
        return self.free_blocks + self.active_blocks + self.cached_blocks + self.in_flight_blocks


class EvictionCounts(NamedTuple):
    """Blocks that have left a tier so far, by why."""

    evicted_blocks: int
    #: Evicted from the tier above, and not taken by this one, which had no room.
    overflowed_blocks: int
    #: Gone because the blocks that they follow went.
    orphaned_blocks: int


class GpuStore(Protocol):
    """Residency, holders and eviction of a machine's GPU; blocks are named by (request, block).

    Rooms are counts of blocks. ``reserve`` answers None when refused, else the moves that must end before
    the room is free: none where there is no lower tier.
    """

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many of the first ``limit`` blocks are found, and how many are ready on the GPU."""
        ...

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks on the GPU; return the lease."""
        ...

    def abandon(self, lease: int) -> None:
        """Take an acquisition back without a trace."""
        ...

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks, evicting the shortfall."""
        ...

    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several (lease, blocks), all or nothing."""
        ...

    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Share the lease's computed blocks up to ``to``.

        ``ready``: when their first layer and all of them were computed, in ns; None: the latest time told.
        Only a store of the tree keeps it.
        """
        ...

    def depth(self, lease: int) -> int:
        """Return how many blocks the lease holds through the cache."""
        ...

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease and touch its path."""
        ...

    def occupancy(self, tier: int) -> Occupancy:
        """Return how a tier's blocks are used."""
        ...

    def eviction_counts(self, tier: int) -> EvictionCounts:
        """Return how many blocks a tier has lost so far."""
        ...

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the machine's digest."""
        ...

    @property
    def digest(self) -> int:
        """The rolling hash so far."""
        ...

    @property
    def merged_blocks(self) -> int:
        """Blocks computed twice and merged."""
        ...

    def log_evictions(self) -> None:
        """Start keeping evictions."""
        ...

    def take_evictions(self) -> list[tuple[int, int, int]]:
        """Return (time, tier, blocks) of the evictions since the last call."""
        ...

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""
        ...


class MovingStore(GpuStore, Protocol):
    """A store with blocks below the GPU, which are loaded and written by moves."""

    def take_orders(self) -> list[Order]:
        """Return the transmissions decided since the last call."""
        ...

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Tell when what a move writes will be ready; its copies keep the times."""
        ...

    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready and its room free."""
        ...

    def duplicates(self, tier: int) -> int:
        """Return how many blocks of a tier have a copy on a faster one too."""
        ...


class LoadingStore(MovingStore, Protocol):
    """A store whose blocks below the GPU are found in parts, and loaded part by part."""

    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts: (fastest tier, first block, past the last, move writing it)."""
        ...

    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for a moment; return the hold."""
        ...

    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        ...

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks up to ``to`` from the CPU into reserved blocks; return the move."""
        ...

    def join(self, lease: int, to: int) -> None:
        """Hold blocks that another request is loading."""
        ...


class SharesPrefixes(Protocol):
    """A store whose shared prefixes are entries of their own."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the last token, users, access) of each shared prefix of a prompt."""
        ...


def check_store(store: GpuStore, machine: int, now_ns: int) -> None:
    """Recompute a store's state from scratch; InvariantError naming machine and time where it differs."""
    try:
        store.check()
    except RuntimeError as broken:
        raise InvariantError(str(broken), f"machine {machine} at {now_ns} ns") from broken

"""The contracts of a machine's block store: for a GPU alone, and with lower tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kvcache_sim.base.errors import InvariantError

#: No move: a block that is ready.
NO_MOVE = 0xFFFF_FFFF
#: As a limit, more blocks than any prompt has.
ALL_BLOCKS = 1 << 30


class Order(NamedTuple):
    """A transmission to send: a move's blocks from one tier to another, after other moves."""

    move: int
    from_tier: int
    to_tier: int
    blocks: int
    #: Moves that must finish first.
    after: list[int]


#: The fields of an ``Order``, as the core gives them.
OrderFields = tuple[int, int, int, int, list[int]]


class Times(NamedTuple):
    """Times (ns) at which the first layer of some blocks, and all layers, are computed or have arrived."""

    first_layer_ns: int
    all_layers_ns: int


class BlockRange(NamedTuple):
    """Blocks of a request's path, from ``start`` to before ``end``."""

    start: int
    end: int


class Wanted(NamedTuple):
    """Private blocks that a lease is to get."""

    lease: int
    blocks: int


class Occupancy(NamedTuple):
    """Use of the blocks of a tier: the first four sum to its capacity."""

    free_blocks: int
    #: In use by running requests, or by a transfer that reads them.
    held_blocks: int
    #: Kept for reuse: nothing uses them, and they can be evicted.
    cached_blocks: int
    #: Being written, or reserved until a write of their old content has finished.
    in_flight_blocks: int
    #: Held blocks that are not shared: open blocks, and blocks still to be computed.
    private_blocks: int

    @property
    def capacity_blocks(self) -> int:
        """All blocks of the tier."""
        return sum(self[:4])


class EvictionCounts(NamedTuple):
    """Blocks that have left a tier so far, by reason."""

    evicted_blocks: int
    #: Evicted from the tier above, and not stored here for lack of free blocks.
    overflowed_blocks: int
    #: Dropped because their parent blocks left.
    orphaned_blocks: int


class GpuStore(Protocol):
    """Residency, leases and eviction of a machine's GPU; blocks are named by (request, block).

    ``reserve`` returns None if refused, else the moves that must finish before the blocks are free (empty
    without lower tiers).
    """

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return the number of leading blocks found, at most ``limit``, and the number ready on the GPU."""
        ...

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks on the GPU; return the lease."""
        ...

    def abandon(self, lease: int) -> None:
        """Undo an acquisition without an effect on recency."""
        ...

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks, evicting the shortfall."""
        ...

    def reserve_many(self, wanted: Sequence[Wanted], now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for several leases, all or nothing."""
        ...

    def commit(self, lease: int, to: int, ready: Times | None = None) -> None:
        """Share the lease's computed blocks up to ``to``.

        ``ready``: the times (ns) at which their first layer and all layers were computed; None: the latest
        known time. Only a store of the tree keeps it.
        """
        ...

    def depth(self, lease: int) -> int:
        """Return the number of cached blocks that the lease holds."""
        ...

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease and touch its path."""
        ...

    def occupancy(self, tier: int) -> Occupancy:
        """Return the use of a tier's blocks."""
        ...

    def eviction_counts(self, tier: int) -> EvictionCounts:
        """Return the blocks that have left a tier so far."""
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
        """Start recording evictions."""
        ...

    def take_evictions(self) -> list[tuple[int, int, int]]:
        """Return (time, tier, blocks) of the evictions since the last call."""
        ...

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""
        ...


class MovingStore(GpuStore, Protocol):
    """A store with blocks below the GPU, which are loaded and written by moves."""

    def take_orders(self) -> Sequence[OrderFields]:
        """Return the transmissions decided since the last call."""
        ...

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Set the ready times (ns) of the blocks that a move writes; its copies keep them."""
        ...

    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready, and release the blocks that it frees."""
        ...

    def duplicates(self, tier: int) -> int:
        """Return the number of a tier's blocks that also have a copy on a faster tier."""
        ...


class LoadingStore(MovingStore, Protocol):
    """A store whose blocks below the GPU are found in parts, and loaded part by part."""

    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts: (fastest tier, first block, past the last, move writing it)."""
        ...

    def protect(self, request: int, end: int, tier: int) -> int:
        """Pin the first ``end`` blocks on a tier temporarily; return the pin."""
        ...

    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        ...

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks up to ``to`` from the CPU into reserved blocks; return the move."""
        ...

    def join(self, lease: int, to: int) -> None:
        """Hold blocks up to ``to`` that another request is loading."""
        ...


class SharesPrefixes(Protocol):
    """A store whose shared prefixes are separate entries."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the last token, users, access) of each shared prefix of a prompt."""
        ...


def check_store(store: GpuStore, machine: int, now_ns: int) -> None:
    """Recompute a store's state from scratch; InvariantError with machine and time if it differs."""
    try:
        store.check()
    except RuntimeError as broken:
        raise InvariantError(str(broken), f"machine {machine} at {now_ns} ns") from broken

"""The records of a store: blocks, tiers, leases and moves (seed 001, "timestamps"; semantics 2).

Blocks form a tree: a block's parent holds the tokens before its own. A block has a copy on several tiers at
once, one or none. A copy is in flight until the move that writes it ends, then ready; it carries the time at
which its first layer was ready, the time at which all layers were, and its last access. An access is a
counter, raised at each release or admission, never the clock: many requests share a timestamp.

A copy's reference count is the number of its users whose path ends at this block, and of its child blocks in
use on the same tier. So a block in use keeps its parent in use, and all before it: counting one user takes a
walk up to the first block that is in use already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcache_sim.cache.store import NO_MOVE, Times

GPU, CPU = 0, 1
#: In place of a tier: another machine.
REMOTE = 255
#: A waiting copy has no block on its tier yet: the tier's backlog will write it.
ABSENT, WAITING, IN_FLIGHT, READY = range(4)


class Freed(NamedTuple):
    """Blocks of a space that are free only once a move has finished."""

    move: int
    blocks: int


class Hold(NamedTuple):
    """A use of a path on a tier, up to its last block."""

    tier: int
    end: Block


class Share(NamedTuple):
    """A lease's part of the blocks that a move frees."""

    lease: Lease
    blocks: int


@dataclass(eq=False, slots=True)
class Copy:
    """A block on one tier: its residency, its users, and True in ``evictable`` if it may leave."""

    tier: int
    state: int = ABSENT
    #: The move that writes it.
    move: int = NO_MOVE
    #: None unless it is ready.
    ready: Times | None = None
    last_access: int = 0
    ref_count: int = 0
    #: Child blocks with a copy on this tier.
    children: int = 0
    #: True if only its children keep it here.
    evictable: bool = False


@dataclass(eq=False, slots=True)
class Block:
    """A block of the tree with a copy, perhaps absent, on each tier."""

    key: int
    #: Blocks before it.
    depth: int
    parent: Block | None
    #: A request on whose path it is.
    request: int
    copies: list[Copy]
    children: dict[int, Block] = field(default_factory=dict)
    #: Tiers that have a copy of it.
    present: int = 0

    def path(self) -> Iterator[Block]:
        """Yield the block and all before it, deepest first; the root is not a block."""
        block = self
        while block.parent is not None:
            yield block
            block = block.parent

    @property
    def is_in_use(self) -> bool:
        """True if a copy on any tier has a user."""
        return any(copy.ref_count for copy in self.copies)

    @property
    def fastest(self) -> Copy:
        """The copy on the fastest tier that has one."""
        return next(copy for copy in self.copies if copy.state != ABSENT)


@dataclass(slots=True)
class Tier:
    """Blocks of one tier by use, and its lost blocks by cause (invariant I2)."""

    number: int
    capacity: int
    free: int
    #: Private to running requests.
    active: int = 0
    #: Shared copies that are ready.
    cached: int = 0
    #: Being written, or freed by an unfinished write below.
    in_flight: int = 0
    #: Cached blocks that may leave.
    evictable: int = 0
    #: Blocks in flight that no lease has reserved.
    coming: list[Freed] = field(default_factory=list)
    backlogs: list[Backlog] = field(default_factory=list)
    evicted: int = 0
    overflowed: int = 0
    orphaned: int = 0

    @property
    def available(self) -> int:
        """Blocks that a reservation may get: free, coming free, or evictable."""
        return self.free + sum(freed.blocks for freed in self.coming) + self.evictable


@dataclass(eq=False, slots=True)
class Lease:
    """The blocks that a running request holds on the GPU: shared blocks of its path, then private blocks."""

    request: int
    path: list[Block]
    #: Its admission's access.
    access: int
    #: Private blocks, of which ``pending`` wait for a write below and ``loading`` are being read from below.
    reserved: int = 0
    pending: int = 0
    loading: int = 0
    live: bool = True


@dataclass(eq=False, slots=True)
class Move:
    """A transmission to a tier, in flight until ``finish_move``."""

    to: int
    blocks: list[Block]
    lease: Lease | None = None
    #: The paths in use until it ends.
    holds: list[Hold] = field(default_factory=list)
    #: Moves that finish first; a move that stands for a backlog waits for itself until its last batch.
    after: list[int] = field(default_factory=list)
    #: Leases whose reserved blocks are free once it has finished.
    waiting: list[Share] = field(default_factory=list)
    times: Times | None = None


@dataclass(eq=False, slots=True)
class Backlog:
    """Victims of the tier above that wait for space, in eviction order; ``move`` writes the last batch."""

    move: int
    blocks: list[Block]
    #: Moves of the earlier batches.
    batches: list[int] = field(default_factory=list)

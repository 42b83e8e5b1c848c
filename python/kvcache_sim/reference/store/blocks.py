"""What the reference keeps of blocks, tiers, leases and moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvcache_sim.cache.store import NO_MOVE

GPU = 0
#: In place of a tier, where KV comes from another machine.
REMOTE = 255
ABSENT, IN_FLIGHT, READY = range(3)
#: When the first layer is ready, and all of it, in ns.
Times = tuple[int, int]


@dataclass(eq=False, slots=True)
class Block:
    """A block of the tree: on each tier its state, the move writing it, its last access and its holders."""

    key: int
    depth: int
    parent: Block | None
    #: How many tiers there are.
    tiers: int
    #: A request on whose path it is.
    request: int = -1
    children: dict[int, Block] = field(default_factory=dict)
    state: list[int] = field(init=False)
    by: list[int] = field(init=False)
    access: list[int] = field(init=False)
    holds: list[int] = field(init=False)
    #: On each tier when its first layer and all of it were ready; None where that is not known.
    ready: list[Times | None] = field(init=False)
    uses: int = 0
    #: The same whenever it comes back.
    number: int = -1

    def __post_init__(self) -> None:
        """Have no copy anywhere."""
        self.state = [ABSENT] * self.tiers
        self.by = [NO_MOVE] * self.tiers
        self.access = [0] * self.tiers
        self.holds = [0] * self.tiers
        self.ready = [None] * self.tiers

    def path(self) -> Iterator[Block]:
        """Yield the block and all before it, deepest first; the root is not a block."""
        block: Block | None = self
        while block is not None and block.parent is not None:
            yield block
            block = block.parent

    def gone(self) -> bool:
        """Return whether no tier has a copy."""
        return self.state == [ABSENT] * self.tiers


@dataclass(slots=True)
class Tier:
    """Room of one tier, in blocks; how many it lost and how."""

    capacity: int
    free: int
    write_back: bool
    #: Of what is in flight, room of victims that nobody has asked for: (move, blocks), free when that ends.
    coming: list[tuple[int, int]] = field(default_factory=list)
    active: int = 0
    in_flight: int = 0
    evicted: int = 0
    overflowed: int = 0
    orphaned: int = 0


@dataclass(slots=True)
class Lease:
    """What a request holds: a path through the cache and room beyond it."""

    request: int
    tail: Block
    depth: int
    access: int
    reserved: int = 0
    pending: int = 0
    #: Reserved blocks that a move is loading.
    loading: int = 0
    live: bool = True
    #: Room was made for it: what it found has been used.
    admitted: bool = False
    #: Leading blocks that were found rather than computed.
    found: int = 0


@dataclass(slots=True)
class Move:
    """A copy on its way to a tier."""

    to: int
    blocks: list[Block]
    lease: Lease | None = None
    #: Held until they have been read: (tier, last block).
    sources: list[tuple[int, Block]] = field(default_factory=list)
    #: Blocks whose path it holds on its target tier.
    held: list[Block] = field(default_factory=list)
    waiting: list[Lease] = field(default_factory=list)
    #: Blocks of room that was claimed by hand, until blocks are placed there.
    claimed: int | None = None
    #: What must end before claimed room is free.
    after: list[int] = field(default_factory=list)
    times: Times | None = None

"""A policy's view of blocks and of the tier they are on, both read-only."""

from __future__ import annotations


class BlockRecord:
    """The data of one resident block; the host updates it."""

    __slots__ = ("created", "depth", "hits", "id", "last_use", "last_use_ns", "parent", "view")

    def __init__(self, id: int, depth: int, parent: int, now: int, now_ns: int) -> None:
        self.id = id
        self.depth = depth
        self.parent = parent
        self.hits = 1
        self.created = self.last_use = now
        self.last_use_ns = now_ns
        self.view = BlockView(self)


class BlockView:
    """A resident block; attributes cannot be set.

    ``id`` is constant for the whole trace. ``now`` of the hooks, ``last_use`` and ``created`` are release
    numbers, so that events at the same time keep their order; ``last_use_ns`` is simulated time in ns.
    """

    __slots__ = ("_record",)
    _record: BlockRecord

    def __init__(self, record: BlockRecord) -> None:
        object.__setattr__(self, "_record", record)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a block view is read-only: {name}")

    @property
    def id(self) -> int:
        """Return the id of the block."""
        return self._record.id

    @property
    def depth(self) -> int:
        """Return the number of blocks before it in its prompt."""
        return self._record.depth

    @property
    def parent(self) -> int:
        """Return the id of the block before it in its prompt; -1 for a first block."""
        return self._record.parent

    @property
    def hits(self) -> int:
        """Return its uses while cached; the insertion counts as the first."""
        return self._record.hits

    @property
    def last_use(self) -> int:
        """Return the number of the release that used it last."""
        return self._record.last_use

    @property
    def created(self) -> int:
        """Return the number of the release that inserted it."""
        return self._record.created

    @property
    def last_use_ns(self) -> int:
        """Return the simulated time of its last use, in ns."""
        return self._record.last_use_ns

    def __repr__(self) -> str:
        return f"block {self.id} (depth {self.depth}, hits {self.hits}, last use {self.last_use})"


class TierView:
    """The tier that a policy manages; attributes cannot be set.

    ``capacity_blocks`` is its capacity in blocks, ``block_size_tokens`` the tokens per block.
    """

    __slots__ = ("block_size_tokens", "capacity_blocks", "name")
    name: str
    capacity_blocks: int
    block_size_tokens: int

    def __init__(self, name: str, capacity_blocks: int, block_size_tokens: int) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "capacity_blocks", capacity_blocks)
        object.__setattr__(self, "block_size_tokens", block_size_tokens)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a tier view is read-only: {name}")

"""A resident block as the Python policies see it, and what they promise."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(slots=True, eq=False)
class Block:
    """One resident block: its key, where it stands in its prompt, and how it was used."""

    key: Hashable
    #: Blocks above it in its prompt.
    depth: int
    #: Uses while cached; the insertion is the first.
    hits: int
    #: Number of the release that used it last; a counter, never the clock.
    last_access: int
    #: Number of the release that inserted it.
    created: int
    last_access_ns: int
    #: Blocks that the request which inserted it found cached, and blocks it had to compute.
    found_blocks: int
    computed_blocks: int
    #: What a sketch knows it by.
    name: int = 0


MayGo = Callable[[Block], bool]


class Policy(Protocol):
    """An eviction policy on single blocks: the slow, plain reference of the native one of the same name.

    Hooks come deepest block first when prefix-aware. ``facts`` of the block are up to date when a hook is
    called. ``evict`` removes and returns one block for which ``may_go`` holds, or None.
    """

    def on_miss(self, key: Hashable) -> None:
        """Learn of a miss before room is made."""

    def on_hit(self, block: Block) -> None:
        """Learn of a use."""

    def insert(self, block: Block) -> None:
        """Take a new block."""

    def evict(self, may_go: MayGo) -> Block | None:
        """Choose a victim and forget it."""

    def remove(self, block: Block) -> None:
        """Forget a block that left for another reason than ``evict``; ghosts stay."""

    def expire(self, now_ns: int) -> list[Block]:
        """Forget and return the blocks whose time has run out, the deepest first."""


@runtime_checkable
class GivesUp(Protocol):
    """A policy that may have no more room for a block although nothing has asked for it."""

    def give_up(self, may_go: MayGo) -> Block | None:
        """Remove and return such a block; a plain cache asks after each use and insertion, a tier never."""

"""The contracts of a pool of several KV cache groups, alone and with a tier below it."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.groups import Brought, Newcomer
from kvcache_sim.cache.store import GpuStore, MovingStore


class GroupStore(GpuStore, Protocol):
    """A pool of several KV cache groups: room is counted in tokens, and each step asks for its own.

    Found, depth and commits are counted in blocks of the groups' common multiple, ``Room`` in blocks of the
    pool. ``reserve`` asks for tokens beyond those that a lease has room for, all of which are computed then.
    """

    def admit(self, asked: Newcomer, now_ns: int) -> tuple[int | None, int, int]:
        """Admit a request with what is cached and room for its first step: lease, hit blocks, room in tokens.

        The lease is None where it is refused; the second then says why: the pool has too few blocks (0), the
        step too few tokens (1), or the state that it would go on from is computed in this very step (2).
        """
        ...

    def begin_step(self) -> None:
        """Hear that another step is composed; states that get their keys from now on are computed in it."""
        ...

    def grow(self, lease: int, tokens: tuple[int, int], now_ns: int) -> bool:
        """Let go of what nobody reads after the first of these tokens, take room to the second; or refuse."""
        ...

    def chunk(self, lease: int, computed: int, target: int, tokens: int) -> int:
        """Return how many of a step's tokens a prompt takes: a state must end where it can be kept."""
        ...

    def most_blocks(self, tokens: int, steps_in_flight: int) -> int:
        """Return how many blocks a sequence of so many tokens can hold while so many steps are under way."""
        ...

    def by_group(self) -> list[tuple[int, int, int, int]]:
        """Return by group: blocks that got a key, that lost it, tokens lost unkept, tokens lost by eviction.

        Lost are those that a first admission could have gone on from in another group.
        """
        ...

    def junctions(self) -> list[tuple[int, int, bool]]:
        """Return (request, tokens, whether a state was lacking) where a group had kept nothing to go on from.

        Of first admissions; some other group could have gone on from so many tokens.
        """
        ...


class LoadingGroupStore(GroupStore, MovingStore, Protocol):
    """A pool of several cache groups with a tier of groups' blocks below it."""

    def brought(self, lease: int) -> Brought:
        """Return what the admission of a lease brings from below, and what its room waits for; once."""
        ...

    def blocks_of_move(self, move: int) -> list[int]:
        """Return how many blocks a move copies of each group."""
        ...

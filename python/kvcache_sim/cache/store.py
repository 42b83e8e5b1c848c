"""The contracts of a machine's block store: what a lone GPU needs, what lower tiers add, marks by hand."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvcache_sim.cache.groups import Brought, Newcomer
from kvcache_sim.values import dataclass

#: No move: a block that is ready.
NO_MOVE = 0xFFFF_FFFF
#: In ``copies``: a tier without a copy.
NO_COPY = 0xFFFF_FFFE
#: As a limit, more blocks than any prompt has.
ALL_BLOCKS = 1 << 30

#: A transmission to send: (move, from tier, to tier, blocks, moves that must end first).
Order = tuple[int, int, int, int, list[int]]

# Kinds of record in the digest of a machine.
ARRIVE, ADMIT, FIRST_TOKEN, PREEMPT, EVICT, TRANSFER, FINISH, HANDOVER = range(1, 9)


class Digest(Protocol):
    """A 64-bit rolling hash over records."""

    def record(self, kind: int, time_ns: int, subject: int, value: int) -> None:
        """Add one record."""
        ...

    @property
    def value(self) -> int:
        """The hash so far."""
        ...


class Room(NamedTuple):
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


class Losses(NamedTuple):
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

    def room(self, tier: int) -> Room:
        """Return how a tier's blocks are used."""
        ...

    def losses(self, tier: int) -> Losses:
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


class LoadingGroupStore(GroupStore, MovingStore, Protocol):
    """A pool of several cache groups with a tier of groups' blocks below it."""

    def brought(self, lease: int) -> Brought:
        """Return what the admission of a lease brings from below, and what its room waits for; once."""
        ...

    def blocks_of_move(self, move: int) -> list[int]:
        """Return how many blocks a move copies of each group."""
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


class PrefetchingStore(Protocol):
    """A store that brings up, by an engine's rules, what a waiting request needs from its last tier."""

    def start_prefetch(self, request: int, limit: int, now_ns: int) -> int:
        """Bring up what it can of the first ``limit`` blocks; return how many were asked for, or 0."""
        ...

    def is_prefetching(self, request: int) -> bool:
        """Return whether blocks of a request are still to come."""
        ...

    def stop_prefetch(self, request: int) -> None:
        """End it with what has come."""
        ...

    @property
    def prefetched_blocks(self) -> int:
        """Blocks brought up so far that were not there."""
        ...


class OffersComputed(Protocol):
    """A store that writes down what a step has computed by rules of its own."""

    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Hear that a step of these leases has ended: what it computed can be copied now."""
        ...


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

    def moved_keys(self, move: int) -> list[int]:
        """Return the keys of the blocks that a move writes, ascending."""
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

    def give_back(self, claim: int) -> None:
        """Give claimed room back that no block was placed in."""
        ...

    def place(self, claim: int, request: int, part: tuple[int, int], source: int | None) -> bool:
        """Mark blocks as being written into a claim of their size, read from a tier that holds them.

        False, nothing changed, where one is there already, is not on the source, or does not follow a block
        that is found (on the GPU: that is there).
        """
        ...

    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        """Mark blocks absent from a tier, last first, as far as nothing keeps them; return how many."""
        ...


class KeepsSessions(Protocol):
    """A store that keeps the tokens of sessions."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the last token, users, access) of each shared prefix of a prompt."""
        ...

    def keep_session(self, request: int, session_id: str, tokens: int) -> bool:
        """Keep a session's tokens after a turn; False where they do not fit."""
        ...


@dataclass(frozen=True, slots=True)
class MachineStore:
    """One machine's store under the contracts that it fulfils.

    ``tree`` is the same store where it is a tree of blocks, which may lie on lower tiers and be marked by
    hand; ``sessions`` the same where it counts the tokens that sessions keep; ``groups`` the same where it
    is a pool of several cache groups.
    """

    gpu: GpuStore
    tree: MarkingStore | None = None
    sessions: KeepsSessions | None = None
    groups: GroupStore | None = None
    #: The same store where blocks may lie below the GPU: a tree's, or an engine's with a tier of its own.
    loading: LoadingStore | None = None
    #: The same store where it is a pool of several cache groups with a tier below.
    loading_groups: LoadingGroupStore | None = None
    #: The same store where it copies down what steps compute by an engine's rules.
    offers: OffersComputed | None = None
    #: The same store where it brings up by an engine's rules what waiting requests need.
    prefetching: PrefetchingStore | None = None

    @property
    def moving(self) -> MovingStore | None:
        """The same store where blocks move between tiers."""
        return self.loading or self.loading_groups

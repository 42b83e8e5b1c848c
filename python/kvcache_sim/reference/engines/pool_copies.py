"""Copies under way between a pool of blocks and the tier below it, as a timed machine's store has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from kvcache_sim.cache.store import Losses, Order, Room
from kvcache_sim.reference.engines.copy_orders import OrdersCopies
from kvcache_sim.reference.engines.leased_store import LeasedStore
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.store.refusals import numbered
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import COMPUTE, STAGING


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between two tiers: its keys, and the blocks of the pool that it writes or reads."""

    keys: Sequence[Key]
    blocks: Sequence[int]
    from_tier: int
    to_tier: int


class PoolCopies(OrdersCopies, LeasedStore):
    """Moves between a pool and the tier below it, by number; keys in use by a copy stay in the tier.

    Blocks given back while they are still being copied down are given out again, and who gets them waits
    for the copy.
    """

    def __init__(self, tier: OffloadTier) -> None:
        self.tier = tier
        self._moves: dict[int, Copy] = {}
        self._numbers = count()
        self._orders: list[Order] = []
        #: Blocks of the pool that are being written, and keys of the tier that are, by the move.
        self._arriving: dict[int, int] = {}
        self._writing: dict[Key, int] = {}
        #: By block the moves that read it.
        self._leaving: dict[int, set[int]] = {}

    def _start(self, copy: Copy, after: Iterable[int]) -> int:
        move = next(self._numbers)
        self._moves[move] = copy
        self.tier.hold(copy.keys)
        self._orders.append((move, copy.from_tier, copy.to_tier, len(copy.keys), list(after)))
        return move

    def _read(self, keys: Sequence[Key], blocks: Sequence[int], after: Iterable[int]) -> int:
        """Read keys of the tier into blocks of the pool; return the move."""
        move = self._start(Copy(keys, blocks, STAGING, COMPUTE), after)
        self._arriving.update(dict.fromkeys(blocks, move))
        return move

    def _write(self, keys: Sequence[Key], blocks: Sequence[int], new: Sequence[Key]) -> int:
        """Send blocks of the pool down, of which ``new`` are put into the tier; return the move."""
        move = self._start(Copy(keys, blocks, COMPUTE, STAGING), [])
        self._writing.update(dict.fromkeys(new, move))
        for block in blocks:
            self._leaving.setdefault(block, set()).add(move)
        return move

    def _reads_of(self, blocks: Iterable[int]) -> list[int]:
        """Return the moves that still read some blocks."""
        return sorted({move for block in blocks for move in self._leaving.get(block, ())})

    @numbered
    def finish_move(self, move: int) -> None:
        """End a copy: what it wrote is ready, what it read may go."""
        copy = self._moves.pop(move)
        self.tier.let_be(copy.keys)
        if copy.to_tier == COMPUTE:
            for block in copy.blocks:
                del self._arriving[block]
            return
        self._written(copy, move)
        for block in copy.blocks:
            self._leaving[block].discard(move)
            if not self._leaving[block]:
                del self._leaving[block]

    def _written(self, copy: Copy, move: int) -> None:
        """Hear that a copy has been written to a tier below the pool."""
        for key in copy.keys:
            if self._writing.get(key) == move:
                del self._writing[key]

    @numbered
    def room(self, tier: int) -> Room:
        """Return how the blocks of the pool, or of the tier, are used; those being written apart."""
        if tier != STAGING:
            pool, arriving = super().room(tier), len(self._arriving)
            return pool._replace(active_blocks=pool.active_blocks - arriving, in_flight_blocks=arriving)
        there, writing = len(self.tier.policy), len(self._writing)
        idle = there - len(self.tier.in_use)
        return Room(self.tier.capacity_blocks - there, 0, there - writing, writing, idle)

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) blocks."""
        return Losses(self.tier.evicted, 0, 0) if tier == STAGING else super().losses(tier)

    def _check_copies(self, holders: Mapping[int, int]) -> None:
        """Raise RuntimeError where a block is copied that is not kept, or the tier does not add up."""
        self._check_tier()
        if any(not holders[block] for block in self._arriving):
            raise RuntimeError("I3: a block is loaded that nobody holds")
        reads = {(block, move) for block, moves in self._leaving.items() for move in moves}
        down = {move: copy for move, copy in self._moves.items() if copy.to_tier != COMPUTE}
        if reads != {(block, move) for move, copy in down.items() for block in copy.blocks}:
            raise RuntimeError("I3: a block is copied down and not kept")

    def _check_tier(self) -> None:
        tier, there = self.tier, len(self.tier.policy)
        if there != tier.stored - tier.evicted or there > tier.capacity_blocks:
            raise RuntimeError(f"I2: {there} of {tier.capacity_blocks} blocks in the tier")
        if any(key not in tier.policy for key in tier.in_use):
            raise RuntimeError("I3: a block of the tier was evicted while it was copied")

"""Loading a part of a found run to the GPU, from wherever it lies (semantics 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvcache_sim.cache.fetch.plan import Part
from kvcache_sim.cache.machine_store import MachineStore
from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.staging import is_staged, stage_up
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.tiers import COMPUTE, REMOTE, STAGING, TIERS


class Loader:
    """Loads parts into blocks that a lease has reserved: tier by tier, another machine's from where it lands.

    On the edges of ``exclusive``, by upper tier, the lower copy is given up once it has been read.
    ``remote``: reads from other machines, and from a pool, where there are any.
    """

    def __init__(
        self, mover: Mover, store: MachineStore, remote: RemoteReads | None, exclusive: frozenset[str]
    ) -> None:
        assert store.loading is not None, "nothing lies below the tier that computes"
        self.mover = mover
        self.store = store.loading
        self._tree = store.tree
        self.remote = remote
        self.exclusive = exclusive

    def load(
        self, request: int, lease: int, part: Part, room: Sequence[int], now_ns: int
    ) -> tuple[int, int] | None:
        """Join or load one part for a request's lease; return (move to the gpu, tier it comes from).

        ``room``: moves that must end before the reserved blocks are free. None when there is no room to stage
        or to land it.
        """
        tier, start, end, by, away = part
        store = self.store
        if tier == COMPUTE:
            store.join(lease, end)
            return by, self._source_of(by)
        after = list(room)
        if STAGING < tier < REMOTE and self._tree is not None:  # an engine's own tiers stage what is loaded
            copies = stage_up(self._tree, request, (start, end), (tier, by), now_ns)
            for lower, copy in copies:
                if TIERS[lower - 1] in self.exclusive:
                    self._drop_when_done(copy, request, (start, end), lower)
            if not is_staged(copies):
                return None
            after.append(copies[-1][1])
        elif tier == REMOTE:
            assert self.remote is not None
            assert away is not None
            owner, its_tier = away
            landed = self.remote.fetch(request, owner, (its_tier, start, end, by), now_ns)
            if landed is None:
                return None
            after.append(landed)
        elif by != NO_MOVE:
            after.append(by)
        move = store.load(lease, end, after)
        if TIERS[COMPUTE] in self.exclusive:
            self._drop_when_done(move, request, (start, end), STAGING)
        return move, tier

    def _drop_when_done(self, move: int, request: int, blocks: tuple[int, int], tier: int) -> None:
        """Give up the lower copy once a move over an exclusive edge is done."""
        assert self._tree is not None, "an engine's own tier keeps what was read"
        self.mover.when_done[move] = partial(self._tree.drop_copy, request, *blocks, tier)

    def _source_of(self, move: int) -> int:
        transfer = self.mover.transfers.get(move)
        return STAGING if transfer is None else transfer.from_tier

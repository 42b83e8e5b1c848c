"""vLLM's block pool with its CPU offloading tier below, as a timed machine's store.

Loads and stores are moves that the machine's channels carry. What a request finds behind the pool's hit is
loaded into blocks of its own; another request that finds them on their way holds them and waits for the same
load. What a step has computed of a prompt is offered to the tier at its end. Blocks given back while they are
still being copied down are given out again, and who gets them waits for the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvcache_sim.cache.store import NO_MOVE, LoadingStore
from kvcache_sim.reference.engines.leased_store import in_parts
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.engines.pool_copies import PoolCopies
from kvcache_sim.reference.engines.pool_store import ReferencePoolStore
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import numbered, refuse
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import COMPUTE, STAGING


class ReferenceOffloadedStore(PoolCopies, ReferencePoolStore):
    """A pool, the tier below it, and the copies between them that are under way."""

    def __init__(
        self,
        keys: ReferenceKeys,
        capacity_blocks: int,
        tier: OffloadTier,
        prompt_tokens: list[int],
        block_size_tokens: int,
    ) -> None:
        PoolCopies.__init__(self, tier)
        ReferencePoolStore.__init__(self, keys, capacity_blocks)
        self._prompt_tokens, self._block_tokens = prompt_tokens, block_size_tokens
        #: By request the first block of its prompt that is still to be offered.
        self._to_offer: dict[int, int] = {}
        self._holds: dict[int, list[Key]] = {}

    # -- what is there

    def _askable_below(self, request: int, limit: int) -> int:
        """Return how many leading blocks the tier may bring: the prompt's last one too, if it is full."""
        tokens = self._prompt_tokens[request]
        whole = (tokens - 1) // self._block_tokens == limit
        return tokens // self._block_tokens if whole else limit

    @numbered
    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found in the pool and the tier, and are ready in the pool."""
        found = super().peek(request, limit)[0]
        ready = next((k for k in range(found) if self._move_of(request, k) != NO_MOVE), found)
        names = self._names(request, self._askable_below(request, limit))
        return found + self.tier.leading(names[found:]), ready

    def _move_of(self, request: int, block: int) -> int:
        """Return the move that writes a block that the pool finds."""
        [name] = self._named(request, block, block + 1)
        return self._arriving.get(self.pool.blocks_of[name][0], NO_MOVE)

    def _named(self, request: int, start: int, end: int) -> list[Key]:
        return [(0, self.keys.key(request, k)) for k in range(start, end)]

    @numbered
    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts: (tier, first block, past the last, move writing it)."""

        names = self._named(request, 0, limit)
        # the pool always computes a prompt's last token, so its block comes from the tier
        last = limit - 1 if limit * self._block_tokens == self._prompt_tokens[request] else limit
        in_pool = self._found(request, last)
        if in_pool == last < limit and names[last] not in self.tier.policy:
            in_pool = self._found(request, limit)

        def places() -> Iterator[tuple[int, int]]:
            for key in names[:in_pool]:
                yield COMPUTE, self._arriving.get(self.pool.blocks_of[key][0], NO_MOVE)
            for key in names[in_pool:]:
                if key not in self.tier.policy:
                    return
                yield STAGING, self._writing.get(key, NO_MOVE)

        return in_parts(places())

    # -- admission

    @numbered
    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold what the tier has of the first ``end`` blocks; return the hold."""
        hold = next(self._numbers)
        self._holds[hold] = [key for key in self._names(request, end) if key in self.tier.policy]
        self.tier.hold(self._holds[hold])
        return hold

    @numbered
    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        self.tier.let_be(self._holds.pop(hold))

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take new blocks for several leases, all or nothing; return the copies that still read them."""
        leases = [self.leases.get(lease) for lease, _ in wanted]
        before = {held.request: len(self.pool.held[held.request]) for held in leases if held.is_admitted}
        if super().reserve_many(wanted, now_ns) is None:
            return None
        taken = list[int]()
        for held in leases:
            if held.request not in before:
                self._to_offer[held.request] = 0
            taken += self.pool.held[held.request][before.get(held.request, held.hits) :]
        return self._reads_of(taken)

    @numbered
    def join(self, lease: int, to: int) -> None:
        """Hold blocks that another request is loading."""
        request = self.leases.admitted(lease).request
        depth = self.keyed[request]
        blocks = [self.pool.blocks_of[key][0] for key in self._named(request, depth, to)]
        for block in blocks:
            self.pool.holders[block] += 1
        self.pool.held[request][depth:depth] = blocks
        self.keyed[request] = to

    @numbered
    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks up to ``to`` from the tier into reserved blocks; return the move."""
        request = self.leases.admitted(lease).request
        depth = self.keyed[request]
        blocks, names = self.pool.held[request][depth:to], self._named(request, depth, to)
        if len(blocks) < to - depth:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        self.tier.load(request, range(depth, to), names)
        move = self._read(names, blocks, after)
        self.pool.cache(request, self._names(request, to))
        self.keyed[request] = self._to_offer[request] = to
        return move

    # -- what steps compute

    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Offer what a step has computed of prompts to the tier, in the order of its requests."""
        for request in [self.leases.get(lease).request for lease in leases]:
            if request not in self._to_offer:
                continue
            start = self._to_offer[request]
            whole = self._prompt_tokens[request] // self._block_tokens
            end = min(self.keyed[request], whole)
            if end > start and self._offer(request, (start, end), now_ns):
                self._to_offer[request] = end
            if self._to_offer[request] == whole:
                del self._to_offer[request]

    def _offer(self, request: int, blocks: tuple[int, int], now_ns: int) -> bool:
        """Offer blocks to the tier and send those that it stores; False where it has no room."""
        stored = self.tier.offer(request, range(*blocks), self._named(request, *blocks))
        if stored is None:
            return False
        new, victims = stored
        self._note_evicted(len(victims), now_ns, STAGING)
        if new:
            sent = set(new)
            held = self.pool.held[request][blocks[0] : blocks[1]]
            named = zip(self._named(request, *blocks), held, strict=True)
            self._write(new, [block for key, block in named if key in sent], new)
        return True

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Let go of a request's blocks; what it used of the tier counts once more."""
        request = self.leases.get(lease).request
        super().release(lease, now_ns)
        self._to_offer.pop(request, None)
        self.tier.finish(request)

    # -- counts

    @numbered
    def duplicates(self, tier: int) -> int:
        """Return how many blocks of the tier the pool has too."""
        return sum(key in self.tier.policy for key in self.pool.blocks_of)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3), recomputed from scratch."""
        super().check()
        self._check_copies(self.pool.holders)


if TYPE_CHECKING:

    def _fulfils(store: ReferenceOffloadedStore) -> LoadingStore:
        return store

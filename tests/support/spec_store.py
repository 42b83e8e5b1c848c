"""The plain store of ``spec/`` with rules and calls of the core's store that no seed asks for.

With ``touch: admission`` an admission makes blocks recent once space was made for it, and no release does. An
eviction takes ``eviction_batch_blocks`` at least. A tier that does not write back loses its victims.
``write_selected`` copies what was used often, ``drop_copy`` ends a lower copy after a load, ``protect`` holds
for a moment, ``touch`` makes recent. ``moved_paths`` and ``residency`` list.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from kvcache_sim.spec.blocks import ABSENT, IN_FLIGHT, READY, Freed, Lease
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.residency import refused

from support.product.spec import Block, CheckedStore, SpecSimulation, Store

#: In place of a time that is not known yet.
NOT_YET = 1 << 62


class WholeStore(CheckedStore):
    """The plain store; ``touch`` and ``eviction_batch_blocks`` are the settings of ``cache``."""

    def __init__(
        self,
        keys: Keys,
        capacities: Sequence[int | None],
        write_back: Sequence[bool],
        policies: Sequence[str] | None = None,
        touch: str = "release",
        eviction_batch_blocks: int = 1,
        write_once: bool = False,
    ) -> None:
        super().__init__(keys, capacities, policies)
        self._writes_back = write_back
        self._touched_at_admission = touch == "admission"
        self.eviction_batch_blocks = eviction_batch_blocks
        self._write_once = write_once
        #: Leases for which blocks were evicted before: from then on their admission counts as an access.
        self._admitted: set[int] = set()
        #: How many requests have used each block.
        self._uses: Counter[Block] = Counter()
        #: Ends of paths in use by ``protect``: (tier, last block).
        self._protected: dict[int, tuple[int, Block]] = {}
        self._holds = count(1)
        #: When each access was.
        self._accessed_ns = [0]

    # -- space

    def _evict(self, tier: int, wanted: int, now_ns: int) -> int:
        return super()._evict(tier, max(wanted, self.eviction_batch_blocks), now_ns)

    def _write_below(self, tier: int, victims: list[Block], now_ns: int) -> list[Freed]:
        if self._write_once:  # what any lower tier has is not written again
            further = [
                block for block in victims if any(c.state == READY for c in block.copies[tier + 2 : -1])
            ]
            victims = [block for block in victims if block not in further]
            for block in further:
                self._unhold(tier + 1, block)
                self.tiers[tier].free += 1
        if self._writes_back[tier]:
            return super()._write_below(tier, victims, now_ns)
        for block in victims:
            self._drop(tier, block)
        return []

    # -- uses and accesses

    def acquire(self, request: int, depth: int) -> int:
        lease = super().acquire(request, depth)
        self._uses.update(self.leases[lease].path)
        return lease

    def abandon(self, lease: int) -> None:
        path = list(self._lease(lease).path)
        super().abandon(lease)
        self._uses.subtract(path)

    def _lengthen(self, held: Lease, blocks: list[Block]) -> None:
        super()._lengthen(held, blocks)
        self._uses.update(blocks)
        self._on_use(blocks, held.access)

    def reserve_many(self, wanted: Sequence[tuple[int, int]], now_ns: int) -> list[int] | None:
        moves = super().reserve_many(wanted, now_ns)
        for lease, _ in wanted if moves is not None else ():
            if lease not in self._admitted:
                self._admitted.add(lease)
                self._on_admission(self.leases[lease], now_ns)
        return moves

    def _on_admission(self, held: Lease, now_ns: int) -> None:
        """Count an admission as an access."""
        self._accessed_ns[held.access] = now_ns
        self._on_use(held.path[::-1], held.access)

    def _on_use(self, blocks: list[Block], admission: int) -> None:
        """Make blocks as recent as the admission that uses them, where admissions do that."""
        for block in blocks if self._touched_at_admission else ():
            for copy in block.copies:
                if copy.state != ABSENT and copy.last_access < admission:
                    copy.last_access = admission
                    if copy.evictable:
                        self._offer(block, copy.tier)

    def _on_release(self, path: list[Block]) -> None:
        if not self._touched_at_admission:
            super()._on_release(path)
            return
        access = self._count_access()
        for block in reversed(path):
            for copy in block.copies:
                if copy.state == READY:
                    self.eviction_orders[copy.tier].on_release(block, access, self.now_ns)
                    if copy.evictable:
                        self._offer(block, copy.tier)

    def touch(self, request: int, end: int) -> None:
        """Make the first ``end`` blocks the most recently used."""
        Store._on_release(self, self._path(request, end))

    def _count_access(self) -> int:
        self._accessed_ns.append(self.latest_ns)
        return super()._count_access()

    def discard(self, request: int, start: int, end: int) -> None:
        """Discard a path from ``end`` up to ``start`` or to what is held, in flight or has children."""
        for block in reversed(self._path(request, end)[start:] if start < end else []):
            if block.is_in_use or block.children or any(c.state == IN_FLIGHT for c in block.copies):
                return
            for copy in block.copies:
                if copy.state == READY:
                    self._free_copy(block, copy.tier)
            self._discard_if_gone(block)

    # -- holds for a moment

    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for a moment; return the hold."""
        block = self._end_of(self._path(request, end), tier)
        self._hold(tier, block)
        handle = next(self._holds)
        self._protected[handle] = tier, block
        return handle

    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""
        if hold not in self._protected or self._protected[hold][0] != tier:
            raise refused("no such hold", "one that is held on this tier")
        self._end_use(*self._protected.pop(hold))

    def paths_in_use(self) -> Iterator[tuple[int, Block]]:
        yield from super().paths_in_use()
        yield from self._protected.values()

    # -- writes, copies, lists

    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy one tier down the lease's blocks that ``uses`` requests have used."""
        often = [
            block
            for block in self._lease(lease).path
            if self._uses[block] >= uses
            and block.copies[tier].state == READY
            and block.copies[tier + 1].state == ABSENT
        ]
        return self._copy_down(tier, often, often[-1:], now_ns)

    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop lower copies that have no user and are not the last, after a load over an exclusive edge."""
        for block in reversed(self._part(request, start, end)):
            copy = block.copies[tier]
            if copy.state == READY and not copy.ref_count and block.present > 1:
                self._free_copy(block, tier)

    def moved_paths(self, move: int) -> list[tuple[int, int]]:
        """Return the paths that a move writes, each as (request, past its last block), the longest first."""
        blocks = self._open_move(move).blocks
        continued = {block.parent for block in blocks}
        ends = sorted((b for b in blocks if b not in continued), key=lambda b: (-b.depth, b.key))
        return [(block.request, block.depth + 1) for block in ends]

    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """Return (past it, copies) of each found block.

        A copy is (tier, writing move, first layer ready, all ready, last access), times in nanoseconds,
        ``NOT_YET`` for one that is not known.
        """
        listed = []
        for block in self._found(request, limit):
            copies = []
            for copy in block.copies:
                if copy.state != ABSENT:
                    known = copy.ready if copy.state == READY else self.moves[copy.move].times
                    times = known or (NOT_YET, NOT_YET)
                    copies.append((copy.tier, copy.move, *times, self._accessed_ns[copy.last_access]))
            listed.append((block.depth + 1, copies))
        return listed


class WholeStoreSimulation(SpecSimulation):
    """A simulation over this store, where it is over a plain one."""

    plain_store: type[WholeStore] = WholeStore

    def _write_back(self, tiers: Sequence[Any]) -> list[bool]:
        write = self.settings.movement.write
        return [write.get(tier.name, "back") != "selective" for tier in tiers[:-1]] + [False]

    def _plain_store(self, keys: Keys, capacities: list[int | None], tiers: Sequence[Any]) -> Store:
        cache, policies = self.settings.cache, [tier.policy for tier in tiers]
        rules = cache.touch, cache.eviction_batch_blocks, self.settings.movement.prefetch != "none"
        return self.plain_store(keys, capacities, self._write_back(tiers), policies, *rules)

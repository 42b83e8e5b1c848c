"""The tree's pool of several cache groups over a tier: what leaves the pool, or is computed, goes down.

A prompt goes on from where all groups can with what the pool or the tier has, each block wherever it is. Of
what only the tier has a group loads what it will read: full attention every block, a window its last ones, a
state one object. Written back, a block goes down when the pool needs its room, which is free once it has been
read; what the tier cannot take is dropped, oldest first. Written through, the blocks that a step has
computed and that are kept go down at its end. The tier keeps its copy of what is loaded, and lets the least
recent go.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kvcache_sim.cache.group_store import LoadingGroupStore
from kvcache_sim.cache.groups import Brought, GroupSettings
from kvcache_sim.cache.store import OffersComputed
from kvcache_sim.reference.engines.group_manager import Allowance, Found
from kvcache_sim.reference.engines.group_pool import NULL, GroupKey, MergingPool
from kvcache_sim.reference.engines.group_rules import skipped_blocks
from kvcache_sim.reference.engines.group_store import ReferenceGroupStore, Running
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.engines.offloaded_groups import OffloadedGroupStore
from kvcache_sim.reference.store.refusals import numbered
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import STAGING
from kvcache_sim.workload.trace import Trace


class _LeavingPool(MergingPool):
    """A merging pool that notes which blocks it gives out, and which keys leave it for that."""

    def __init__(self, capacity_blocks: int, given: list[int], left: list[tuple[int, GroupKey]]) -> None:
        super().__init__(capacity_blocks)
        self._given, self._left = given, left

    def take(self, number: int) -> list[int]:
        """Return blocks from the queue's front; note them and the keys that they had."""
        self._left += [(b, self.key_of[b]) for b in islice(self.free, number) if b in self.key_of]
        blocks = MergingPool.take(self, number)
        self._given += blocks
        return blocks


class TieredGroupStore(OffloadedGroupStore):
    """The tree's pool of groups over a tier that is written ``back`` or ``through``."""

    def __init__(
        self, trace: Trace, settings: GroupSettings, capacity_blocks: int, tier: OffloadTier, write: str
    ) -> None:
        super().__init__(trace, settings, capacity_blocks, tier)
        self._writes_back = write == "back"
        #: Blocks that the pool has taken from others in the call that is being answered, with their keys.
        self._left = list[tuple[int, GroupKey]]()
        self.manager.pool = _LeavingPool(capacity_blocks, self._given, self._left)

    def _tier_key(self, key: GroupKey) -> Key:
        group, (*named, place) = key
        return (*named, place * len(self.manager.groups) + group)

    def _look_up(self, request: int, limit: int) -> Found:
        """Return how far all groups can go on with what is in the pool or in the tier."""
        manager = self.manager

        def has(block: int, numbers: list[int]) -> bool:
            keys = [manager.key(number, request, block) for number in numbers]
            return all(manager.pool.find(k) or self._tier_key(k) in self.tier.policy for k in keys)

        hit = manager.joint_hit(limit, has)
        in_pool = manager.look_up(request, hit.tokens)
        return Found(
            hit.tokens,
            manager.blocks_of(request, hit),
            hit.longest if hit.longest > hit.tokens else 0,
            in_pool.tokens,
        )

    def _hold(
        self, lease: int, found: Found, end: int, running: Running, allowed: Allowance, now_ns: int
    ) -> bool:
        self._given.clear()
        self._left.clear()
        request, groups = self.leases.get(lease).request, self.manager.groups
        missing = [
            (number, place)
            for number, (group, blocks) in enumerate(zip(groups, found.blocks, strict=True))
            for place in range(min(skipped_blocks(group, found.tokens), len(blocks)), len(blocks))
            if blocks[place] == NULL
        ]
        keys = [self._key(number, request, place) for number, place in missing]
        self.tier.hold(keys)  # what is to be loaded makes no room for what leaves
        held = ReferenceGroupStore._hold(self, lease, found, end, running, allowed, now_ns)
        if held:
            self._demote(now_ns)
        self.tier.let_be(keys)
        if held:
            self._bring(lease, found, missing, keys)
        return held

    def _bring(self, lease: int, found: Found, missing: list[tuple[int, int]], keys: list[Key]) -> None:
        """Load what an admission lacks in the pool, and note what it waits for."""
        request, manager = self.leases.get(lease).request, self.manager
        tables = manager.tables[request].blocks
        waits = self._reads_of(self._given)
        loads = sorted({self._arriving[b] for blocks in tables for b in blocks if b in self._arriving})
        self._offered[request] = [0] * len(manager.groups)
        if missing:
            blocks = [tables[number][place] for number, place in missing]
            self.tier.load(request, [self._place(number, place) for number, place in missing], keys)
            written = {self._writing[key] for key in keys if key in self._writing}
            move = self._read(keys, blocks, sorted({*waits, *written}))
            counts = self._by_group[move] = [0] * len(manager.groups)
            for (number, place), block in zip(missing, blocks, strict=True):
                counts[number] += 1
                manager.pool.give_key(block, manager.key(number, request, place))
            loads.append(move)
        loaded = [(move, STAGING) for move in loads]
        self._brought[lease] = Brought(found.pool_tokens // self.align, waits, loaded)

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Give back what was read for the last time, then take room; return the copies that still read it."""
        self._given.clear()
        self._left.clear()
        if ReferenceGroupStore.reserve_many(self, wanted, now_ns) is None:
            return None
        self._demote(now_ns)
        return self._reads_of(self._given)

    def _demote(self, now_ns: int) -> None:
        """Copy down what has just left the pool and is not in the tier, where it is written back."""
        left = [(block, key) for block, key in self._left if self._tier_key(key) not in self.tier.policy]
        if not self._writes_back or not left:
            return
        tier = self.tier
        fits = tier.capacity_blocks - len(tier.in_use)
        left = left[max(0, len(left) - fits) :]
        keys = [self._tier_key(key) for _, key in left]
        victims = tier.policy.store(keys, set(tier.in_use))
        assert victims is not None, "so many are not in use"
        tier.stored += len(keys)
        tier.evicted += len(victims)
        self._note_evicted(len(victims), now_ns, STAGING)
        if keys:
            move = self._write(keys, [block for block, _ in left], keys)
            counts = self._by_group[move] = [0] * len(self.manager.groups)
            for _, (group, _) in left:
                counts[group] += 1

    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Send down what a step has computed of prompts, where it is written through."""
        if not self._writes_back:
            super().step_computed(leases, now_ns)


if TYPE_CHECKING:

    def _fulfils(store: TieredGroupStore) -> tuple[LoadingGroupStore, OffersComputed]:
        return store, store

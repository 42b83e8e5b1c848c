"""vLLM's pool of several cache groups with its CPU offloading tier below, as a timed machine's store.

Rules: vLLM 0.33.0's ``OffloadingConnectorScheduler`` with one block a chunk. The tier keeps a group's blocks,
each under the key that it has in the pool. Behind the pool's joint hit all groups are looked up once more in
the tier alone; of what is found there a group loads what it will read: full attention all of it, a window its
last blocks, a state itself. A step's blocks are offered at its end, those of the prompt that the retention
rule keeps. Loads and stores are moves that the machine's channels carry; a loaded block that is kept has its
key at once, and who else finds it waits for the same load.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcache_sim.cache.group_store import LoadingGroupStore
from kvcache_sim.cache.groups import Brought, GroupSettings
from kvcache_sim.cache.store import OffersComputed
from kvcache_sim.reference.engines.group_manager import Allowance, Found
from kvcache_sim.reference.engines.group_pool import NULL, GroupPool
from kvcache_sim.reference.engines.group_rules import retained, skipped_blocks
from kvcache_sim.reference.engines.group_store import ReferenceGroupStore, Running
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.engines.pool_copies import PoolCopies
from kvcache_sim.reference.store.refusals import numbered
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import STAGING
from kvcache_sim.workload.trace import Trace


class _NotingPool(GroupPool):
    """A pool that notes which blocks it gives out."""

    def __init__(self, capacity_blocks: int, given: list[int]) -> None:
        super().__init__(capacity_blocks)
        self._given = given

    def take(self, number: int) -> list[int]:
        """Return blocks from the queue's front, and note them."""
        blocks = super().take(number)
        self._given += blocks
        return blocks


class OffloadedGroupStore(PoolCopies, ReferenceGroupStore):
    """A pool of groups, the tier below it, and the copies between them that are under way."""

    def __init__(
        self, trace: Trace, settings: GroupSettings, capacity_blocks: int, tier: OffloadTier
    ) -> None:
        PoolCopies.__init__(self, tier)
        ReferenceGroupStore.__init__(self, trace, settings, capacity_blocks)
        #: What the pool has given out in the call that is being answered.
        self._given = list[int]()
        self.manager.pool = _NotingPool(capacity_blocks, self._given)
        self._prompt_tokens: list[int] = trace.input_tokens.tolist()
        #: By running request, how many blocks of each group have been offered to the tier, or came from it.
        self._offered: dict[int, list[int]] = {}
        #: By lease what its admission brings, until it is asked for.
        self._brought: dict[int, Brought] = {}
        #: By move how many blocks it copies of each group.
        self._by_group: dict[int, list[int]] = {}

    # -- what is there

    def _key(self, group: int, request: int, block: int) -> Key:
        """Return the tier's key of a group's block."""
        *named, place = self.manager.key(group, request, block)[1]
        return (*named, place * len(self.manager.groups) + group)

    def _look_up(self, request: int, limit: int) -> Found:
        """Return the joint hit of the pool, and how far the tier goes on from there."""
        found, groups = super()._look_up(request, limit), self.manager.groups
        if found.tokens == limit:
            return found

        def has(block: int, numbers: list[int]) -> bool:
            if (block + 1) * groups[numbers[0]].block_size_tokens <= found.pool_tokens:
                return True
            return all(self._key(number, request, block) in self.tier.policy for number in numbers)

        return replace(found, tokens=self.manager.joint_hit(limit, has).tokens)

    @numbered
    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found in the pool and the tier, and are ready in the pool."""
        self.leases.known_request(request)
        found = self._look_up(request, limit * self.align)
        arriving = any(block in self._arriving for blocks in found.blocks for block in blocks)
        return found.tokens // self.align, 0 if arriving else found.pool_tokens // self.align

    # -- admission

    def _hold(
        self, lease: int, found: Found, end: int, running: Running, allowed: Allowance, now_ns: int
    ) -> bool:
        self._given.clear()
        if not super()._hold(lease, found, end, running, allowed, now_ns):
            return False
        request, groups = self.leases.get(lease).request, self.manager.groups
        held = self.manager.tables[request].blocks
        waits = self._reads_of(self._given)
        loads = sorted({self._arriving[block] for kept in held for block in kept if block in self._arriving})
        blocks, keys, places = list[int](), list[Key](), list[int]()
        counts, self._offered[request] = [0] * len(groups), [0] * len(groups)
        for number, group in enumerate(groups):
            past = found.tokens // group.block_size_tokens
            start = max(skipped_blocks(group, found.tokens), len(found.blocks[number]))
            blocks += held[number][start:past]
            keys += [self._key(number, request, block) for block in range(start, past)]
            places += [self._place(number, block) for block in range(start, past)]
            counts[number] = past - start
            if start < past:
                self._offered[request][number] = past
        if blocks:
            self.tier.load(request, places, keys)
            move = self._read(keys, blocks, waits)
            self._by_group[move] = counts
            loads.append(move)
            self.manager.give_keys(request, found.tokens)
        loaded = [(move, STAGING) for move in loads]
        self._brought[lease] = Brought(found.pool_tokens // self.align, waits, loaded)
        return True

    def _place(self, group: int, block: int) -> int:
        """Return where a group's block stands in a prompt: by its group, then by its number."""
        return group << 32 | block

    def brought(self, lease: int) -> Brought:
        """Return what the admission of a lease brings from below, and what its room waits for; once."""
        return self._brought.pop(lease)

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Give back what was read for the last time, then take room; return the copies that still read it."""
        self._given.clear()
        if super().reserve_many(wanted, now_ns) is None:
            return None
        return self._reads_of(self._given)

    # -- what steps compute

    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Offer what a step has computed of prompts to the tier, in the order of its requests."""
        for request in [self.leases.get(lease).request for lease in leases]:
            if request in self._offered:
                self._offer(request, now_ns)

    def _offer(self, request: int, now_ns: int) -> None:
        """Offer the blocks of a prompt that have come since the last time, group by group."""
        manager, offered = self.manager, self._offered[request]
        tables = manager.tables[request]
        whole = self._prompt_tokens[request] // self.align * self.align
        computed = min(self.running[request].depth * self.align, whole)
        ends = [computed // group.block_size_tokens for group in manager.groups]
        blocks, keys, places = list[int](), list[Key](), list[int]()
        for number, group in enumerate(manager.groups):
            for k in range(offered[number], ends[number]):
                block = tables.blocks[number][k]
                interval = manager.limits.retention_interval
                if block != NULL and retained(group, k, self.align, interval, tables.boundaries):
                    blocks.append(block)
                    keys.append(self._key(number, request, k))
                    places.append(self._place(number, k))
        if keys:
            stored = self.tier.offer(request, places, keys)
            if stored is None:
                return  # there is no room: they are offered again after the next step
            new, victims = stored
            self._note_evicted(len(victims), now_ns, STAGING)
            if new:
                self._send(new, dict(zip(keys, zip(places, blocks, strict=True), strict=True)))
        if computed == whole:
            del self._offered[request]
        else:
            self._offered[request] = [max(*both) for both in zip(offered, ends, strict=True)]

    def _send(self, new: list[Key], offered: dict[Key, tuple[int, int]]) -> None:
        """Copy new keys of the tier down, of which it was offered the places and blocks."""
        sent = [offered[key] for key in new]
        move = self._write(new, [block for _, block in sent], new)
        counts = self._by_group[move] = [0] * len(self.manager.groups)
        for place, _ in sent:
            counts[place >> 32] += 1

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Let go of a request's blocks; what it used of the tier counts once more."""
        held = self.leases.get(lease)
        super().release(lease, now_ns)
        self._offered.pop(held.request, None)
        self._brought.pop(lease, None)
        if held.is_admitted:
            self.tier.finish(held.request)

    # -- copies

    def blocks_of_move(self, move: int) -> list[int]:
        """Return how many blocks a move copies of each group."""
        return self._by_group[move]

    @numbered
    def finish_move(self, move: int) -> None:
        """End a copy: what it wrote is ready, what it read may go."""
        del self._by_group[move]
        super().finish_move(move)

    # -- counts

    @numbered
    def duplicates(self, tier: int) -> int:
        """Return how many blocks of the tier the pool has too."""
        groups = len(self.manager.groups)
        return sum(
            (*named, place * groups + group) in self.tier.policy
            for group, (*named, place) in self.manager.pool.blocks_of
        )

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3, I4), recomputed from scratch."""
        super().check()
        self._check_copies(self.manager.pool.holders)
        for move, counts in self._by_group.items():
            if sum(counts) != len(self._moves[move].keys):
                raise RuntimeError(f"I9: move {move} copies {counts} blocks of groups under other keys")


if TYPE_CHECKING:

    def _fulfils(store: OffloadedGroupStore) -> tuple[LoadingGroupStore, OffersComputed]:
        return store, store

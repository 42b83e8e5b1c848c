"""vLLM's pool of several cache groups as a machine's store, in plain Python: the native one's reference."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.store import GroupStore, Losses, Room
from kvcache_sim.reference.engines.group_manager import Found, GroupLimits, GroupManager
from kvcache_sim.reference.engines.group_pool import NULL, GroupPool
from kvcache_sim.reference.engines.group_rules import admission_blocks, cdiv, chunk_end, skipped_blocks
from kvcache_sim.reference.engines.leased_store import LeasedStore
from kvcache_sim.reference.engines.leases import EngineLeases, gpu_alone
from kvcache_sim.reference.store.refusals import in_order, numbered, refuse
from kvcache_sim.replay.block_keys import BlockKeys
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, next_turns
from kvcache_sim.workload.trace import Trace


@dataclass(slots=True)
class _Running:
    """Tokens of room, all computed when more is asked for; the junction; blocks offered their keys."""

    room_tokens: int
    junction_tokens: int
    depth: int


class ReferenceGroupStore(LeasedStore):
    """Leases, room and records over ``GroupManager``, one lease a request. The GPU tier is the only one."""

    merged_blocks = 0

    def __init__(self, trace: Trace, settings: GroupSettings, capacity_blocks: int) -> None:
        super().__init__()
        layout = settings.layout
        unit = math.gcd(trace.block_size, *(group.block_size_tokens for group in layout.groups))
        following = [None if turn == NO_NEXT_TURN else int(turn) for turn in next_turns(trace)]
        keys, limits = BlockKeys(trace, unit, following), GroupLimits(*settings.limits)
        self.align = layout.scheduler_block_size
        self.manager = GroupManager(keys, layout.groups, self.align, limits, GroupPool(capacity_blocks))
        self.leases = EngineLeases(len(trace))
        self.running: dict[int, _Running] = {}

    def _found(self, request: int, limit: int) -> int:
        return self.manager.look_up(request, limit * self.align).tokens // self.align

    def most_blocks(self, tokens: int) -> int:
        """Return how many blocks a sequence of so many tokens can hold at one time."""
        limits = self.manager.limits
        return sum(
            min(2, cdiv(tokens, group.block_size_tokens))
            if group.kind == "linear"
            else admission_blocks(group, tokens, limits.max_num_batched_tokens, limits.max_model_len)
            for group in self.manager.groups
        )

    def free_queue(self) -> list[object]:
        """Return the keys of the free blocks, next to be taken first; None where there is none."""
        return [self.manager.pool.key_of.get(block) for block in self.manager.pool.free]

    def admit(
        self,
        request: int,
        matchable_blocks: int,
        tokens: tuple[int, int],
        room: tuple[int, bool],
        now_ns: int,
    ) -> tuple[int | None, int, int]:
        """Admit a request with what is cached and room for its first step; see ``cache.store.GroupStore``."""
        self.leases.known_request(request)
        known, left = tokens
        found = self.manager.look_up(request, matchable_blocks * self.align)
        hits = found.tokens // self.align
        lease = self.leases.give(request, hits, self._found)
        end = self._chunk_end(found.tokens, known, left, found.junction_tokens)
        if found.tokens >= end and end < known:
            self.leases.abandon(lease)
            return None, 1, 0
        if not self._hold(lease, found, known, end, room, now_ns):
            self.leases.abandon(lease)
            return None, 0, 0
        return lease, hits, end

    def _hold(
        self, lease: int, found: Found, known: int, end: int, room: tuple[int, bool], now_ns: int
    ) -> bool:
        held, before = self.leases.get(lease), self.manager.pool.evicted
        if not self.manager.admit(held.request, known, found, end, *room):
            return False
        held.is_admitted = True
        self.running[held.request] = _Running(end, found.junction_tokens, held.hits)
        self._note_evicted(self.manager.pool.evicted - before, now_ns)
        return True

    def _chunk_end(self, computed: int, known: int, left: int, junction: int) -> int:
        manager = self.manager
        step = manager.limits.max_num_batched_tokens
        return chunk_end(manager.groups, computed, known, step, junction, left)

    def chunk(self, lease: int, computed: int, target: int, tokens: int) -> int:
        """Return how many of a step's tokens a prompt takes: a state must end where it can be kept."""
        junction = self.running[self.leases.admitted(lease).request].junction_tokens
        return max(0, self._chunk_end(computed, target, tokens, junction) - computed)

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Give back what was read for the last time, then take room for several leases, all or nothing."""
        asked = self.leases.asked(wanted, self._found)
        manager, before = self.manager, self.manager.pool.evicted
        if len(asked) == 1 and not asked[0][0].is_admitted:
            [(lease, _)], [(held, tokens)] = wanted, asked
            found = manager.look_up(held.request, held.hits * self.align)
            found = Found(found.tokens, found.blocks, 0)
            known = found.tokens + tokens
            return [] if self._hold(lease, found, max(known, 1), known, (0, False), now_ns) else None
        missing = 0
        for held, tokens in asked:
            computed = self.running[held.request].room_tokens
            manager.tables[held.request].computed = computed
            manager.drop_unread(held.request)
            missing += manager.lacking(held.request, computed + tokens)
        if missing > len(manager.pool.free):
            return None
        for held, tokens in asked:
            running = self.running[held.request]
            running.room_tokens += tokens
            manager.take(held.request, running.room_tokens)
        self._note_evicted(self.manager.pool.evicted - before, now_ns)
        return []

    @numbered
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Give a request's leading blocks their keys, those that are kept."""
        in_order(ready or (0, 0))
        request = self.leases.admitted(lease).request
        running = self.running[request]
        if to * self.align > running.room_tokens:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        running.depth = max(running.depth, to)
        self.manager.give_keys(request, to * self.align)

    @numbered
    def depth(self, lease: int) -> int:
        """Return how many leading blocks were found or have been offered their keys."""
        held = self.leases.get(lease)
        return self.running[held.request].depth if held.is_admitted else held.hits

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Let go of a request's blocks."""
        ended = self.leases.end(lease)
        if ended.is_admitted:
            self.manager.release(ended.request)
            del self.running[ended.request]

    @numbered
    def room(self, tier: int) -> Room:
        """Return (free without a key, held, free with a key, 0, free with a key)."""
        gpu_alone(tier)
        pool = self.manager.pool
        idle, free = sum(block in pool.key_of for block in pool.free), len(pool.free)
        return Room(free - idle, pool.capacity_blocks - free, idle, 0, idle)

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) blocks."""
        gpu_alone(tier)
        return Losses(self.manager.pool.evicted, 0, 0)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3, I4), recomputed from scratch."""
        manager, pool = self.manager, self.manager.pool
        tables = [blocks for held in manager.tables.values() for blocks in held.blocks]
        holds = Counter(block for blocks in tables for block in blocks if block != NULL)
        for block, counted in pool.holders.items():
            if holds.get(block, 0) != counted:
                raise RuntimeError(f"I3: block {block} counts {counted} holders, has {holds[block]}")
        idle = [block for block, counted in pool.holders.items() if not counted]
        if sorted(pool.free) != idle or len(pool.holders) != pool.capacity_blocks:
            raise RuntimeError(f"I2: {len(idle)} blocks have no holder, {len(pool.free)} are free")
        keyed = {block: key for key, blocks in pool.blocks_of.items() for block in blocks}
        if keyed != pool.key_of or not all(pool.blocks_of.values()):
            raise RuntimeError("a block is not found under its key")
        for request, held in manager.tables.items():
            for group, blocks in zip(manager.groups, held.blocks, strict=True):
                first = skipped_blocks(group, held.computed)
                if NULL in blocks[first : cdiv(held.computed, group.block_size_tokens)]:
                    raise RuntimeError(f"I4: request {request} lacks blocks that {held.computed} tokens need")


if TYPE_CHECKING:

    def _fulfils(store: ReferenceGroupStore) -> GroupStore:
        return store

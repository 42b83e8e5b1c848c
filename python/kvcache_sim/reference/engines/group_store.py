"""vLLM's pool of several cache groups as a machine's store, in plain Python: the native one's reference."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.cache.group_store import GroupStore
from kvcache_sim.cache.groups import GroupSettings, Newcomer
from kvcache_sim.cache.store import Room
from kvcache_sim.reference.engines.group_manager import Allowance, Found, GroupLimits, GroupManager
from kvcache_sim.reference.engines.group_pool import NULL, GroupPool, MergingPool
from kvcache_sim.reference.engines.group_rules import (
    Chunk,
    admission_blocks,
    cdiv,
    chunk_end,
    skipped_blocks,
)
from kvcache_sim.reference.engines.leased_store import LeasedStore
from kvcache_sim.reference.engines.leases import EngineLeases
from kvcache_sim.reference.store.refusals import in_order, numbered, refuse
from kvcache_sim.replay.block_keys import BlockKeys
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, next_turns
from kvcache_sim.workload.trace import Trace


@dataclass(slots=True)
class Running:
    """Tokens of room, all computed when more is asked for; the junction; blocks offered their keys.

    Besides the tokens of its prompt, and the most of one of its chunks.
    """

    room_tokens: int
    junction_tokens: int
    depth: int
    prompt_tokens: int
    chunk_tokens: int


class ReferenceGroupStore(LeasedStore):
    """Leases, room and records over ``GroupManager``, one lease a request. The GPU tier is the only one."""

    def __init__(self, trace: Trace, settings: GroupSettings, capacity_blocks: int) -> None:
        super().__init__()
        layout = settings.layout
        unit = math.gcd(trace.block_size, *(group.block_size_tokens for group in layout.groups))
        following = [None if turn == NO_NEXT_TURN else int(turn) for turn in next_turns(trace)]
        keys, limits = BlockKeys(trace, unit, following), GroupLimits(*settings.limits)
        self.align = layout.scheduler_block_size
        self.manager = GroupManager(
            keys, layout.groups, self.align, limits, self._pool(settings, capacity_blocks)
        )
        self.manager.rules = settings.rules
        self.leases = EngineLeases(len(trace))
        self.running: dict[int, Running] = {}
        self.tells_steps = False
        #: By request, what its first admission had lost: its tokens, and (group, whether it was not kept).
        self.lost: dict[int, tuple[Found, list[tuple[int, bool]]]] = {}

    def _pool(self, settings: GroupSettings, capacity_blocks: int) -> GroupPool:
        """Return the pool, all of whose blocks are free."""
        return (MergingPool if settings.rules == "tree" else GroupPool)(capacity_blocks)

    @property
    def merged_blocks(self) -> int:
        """Blocks given back since another one had their key."""
        pool = self.manager.pool
        return pool.merged if isinstance(pool, MergingPool) else 0

    def _found(self, request: int, limit: int) -> int:
        return self._look_up(request, limit * self.align).tokens // self.align

    def _look_up(self, request: int, limit: int) -> Found:
        """Return what at most ``limit`` tokens of a prompt find."""
        return self.manager.look_up(request, limit)

    def most_blocks(self, tokens: int, steps_in_flight: int) -> int:
        """Return how many blocks a sequence of so many tokens can hold while so many steps are under way."""
        limits = self.manager.limits
        in_flight = steps_in_flight * limits.max_num_batched_tokens
        return sum(
            min(1 + steps_in_flight, cdiv(tokens, group.block_size_tokens))
            if group.kind == "linear"
            else admission_blocks(group, tokens, in_flight, limits.max_model_len)
            for group in self.manager.groups
        )

    def begin_step(self) -> None:
        """Forget which states were computed in the step before."""
        self.tells_steps = True
        self.manager.states_of_step.clear()

    def free_queue(self) -> list[object]:
        """Return the keys of the free blocks, next to be taken first; None where there is none."""
        return [self.manager.pool.key_of.get(block) for block in self.manager.pool.free]

    def admit(self, asked: Newcomer, now_ns: int) -> tuple[int | None, int, int]:
        """Admit a request with what is cached and room for its first step; see ``cache.store.GroupStore``."""
        request, known = asked.request, asked.known_tokens
        self.leases.known_request(request)
        manager = self.manager
        found = self._look_up(request, asked.matchable_blocks * self.align)
        hits = found.tokens // self.align
        lease = self.leases.give(request, hits, self._found)
        running = Running(0, found.junction_tokens, hits, asked.prompt_tokens, asked.chunk_tokens)
        end = self._chunk_end(running, found.tokens, known, min(asked.step_tokens, known - found.tokens))
        in_flight = asked.steps_in_flight * manager.limits.max_num_batched_tokens
        allowed = Allowance(known if asked.whole else None, in_flight, asked.kept_blocks)
        if found.tokens >= end and end < known:
            refused = 1
        elif self.tells_steps and manager.is_computed_now(request, found.tokens):
            refused = 2
        else:
            lost = list(manager.lost(request, found))
            if self._hold(lease, found, end, running, allowed, now_ns):
                self.lost.setdefault(request, (found, lost))
                return lease, hits, end
            refused = 0
        self.leases.abandon(lease)
        return None, refused, 0

    def by_group(self) -> list[tuple[int, int, int, int]]:
        """Return by group what ``cache.store.GroupStore`` says: blocks keyed and evicted, tokens lost."""
        pool, lost = self.manager.pool, [[0, 0] for _ in self.manager.groups]
        for found, groups in self.lost.values():
            for group, not_kept in groups:
                lost[group][0 if not_kept else 1] += found.junction_tokens - found.tokens
        return [
            (pool.inserted_by_group[n], pool.evicted_by_group[n], unkept, evicted)
            for n, (unkept, evicted) in enumerate(lost)
        ]

    def junctions(self) -> list[tuple[int, int, bool]]:
        """Return (request, tokens, whether a state was lacking) where a group had kept nothing."""
        told = []
        for request, (found, groups) in self.lost.items():
            unkept = [group for group, not_kept in groups if not_kept]
            if unkept:
                is_state = self.manager.groups[unkept[0]].kind == "linear"
                told.append((request, found.junction_tokens, is_state))
        return told

    def _hold(
        self, lease: int, found: Found, end: int, running: Running, allowed: Allowance, now_ns: int
    ) -> bool:
        held, before = self.leases.get(lease), self.manager.pool.evicted
        if not self.manager.admit(held.request, running.prompt_tokens, found, end, allowed):
            return False
        held.is_admitted = True
        running.room_tokens = end
        self.running[held.request] = running
        self._note_evicted(self.manager.pool.evicted - before, now_ns)
        return True

    def _chunk_end(self, running: Running, computed: int, known: int, tokens: int) -> int:
        chunk = Chunk(
            computed, tokens, running.chunk_tokens, known, running.prompt_tokens, running.junction_tokens
        )
        return chunk_end(self.manager.groups, chunk)

    def chunk(self, lease: int, computed: int, target: int, tokens: int) -> int:
        """Return how many of a step's tokens a prompt takes: a state must end where it can be kept."""
        running = self.running[self.leases.admitted(lease).request]
        return max(0, self._chunk_end(running, computed, target, tokens) - computed)

    def grow(self, lease: int, tokens: tuple[int, int], now_ns: int) -> bool:
        """Let go of what nobody reads after the first of these tokens, take room to the second; or refuse."""
        request, before = self.leases.admitted(lease).request, self.manager.pool.evicted
        computed, end = tokens
        self.manager.tables[request].computed = computed
        if not self.manager.extend(request, end):
            return False
        self.running[request].room_tokens = max(self.running[request].room_tokens, end)
        self._note_evicted(self.manager.pool.evicted - before, now_ns)
        return True

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Give back what was read for the last time, then take room for several leases, all or nothing."""
        asked = self.leases.asked(wanted, self._found)
        manager, before = self.manager, self.manager.pool.evicted
        if len(asked) == 1 and not asked[0][0].is_admitted:
            [(lease, _)], [(held, tokens)] = wanted, asked
            found = manager.look_up(held.request, held.hits * self.align)
            found = Found(found.tokens, found.blocks, 0, found.tokens)
            known = found.tokens + tokens
            step = manager.limits.max_num_batched_tokens
            running = Running(0, 0, held.hits, max(known, 1), step)
            return [] if self._hold(lease, found, known, running, Allowance(None, 0), now_ns) else None
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
        running, manager = self.running[request], self.manager
        held = zip(manager.groups, manager.tables[request].blocks, strict=True)
        if any(to * self.align > len(blocks) * group.block_size_tokens for group, blocks in held):
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

    def _gpu_room(self) -> Room:
        """Return (free without a key, held, free with a key, 0, free with a key)."""
        pool = self.manager.pool
        idle, free = pool.idle_keyed, len(pool.free)
        return Room(free - idle, pool.capacity_blocks - free, idle, 0, idle)

    def _gpu_evicted(self) -> int:
        return self.manager.pool.evicted

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
        if pool.idle_keyed != sum(block in pool.key_of for block in pool.free):
            raise RuntimeError(f"I2: {pool.idle_keyed} free blocks with a key are counted")
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

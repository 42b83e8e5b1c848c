"""The blocks that vLLM's scheduler gives out (``KVCacheManager``): of one cache group, or of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from kvcache_sim.cache.group_store import GroupStore
from kvcache_sim.cache.groups import Newcomer
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.serving.vllm.sequence import VllmSequence
from kvcache_sim.tiers import COMPUTE


class Entry(NamedTuple):
    """An admission: its lease, the blocks of the cache that it hit, and the tokens that it has room for."""

    lease: int
    hit_blocks: int
    room_tokens: int


class Blocks(Protocol):
    """A pool of blocks under vLLM's rules, as the scheduler asks it."""

    def begin_step(self) -> None:
        """Hear that another step is composed."""
        ...

    def admit(self, asked: Newcomer, now: int) -> Entry | None:
        """Admit a waiting request with what is cached of it; None, and no change, where it is refused."""
        ...

    def chunk(self, s: VllmSequence, tokens: int) -> int:
        """Return how many of its tokens a running request gets; 0 where they are too few to keep a state."""
        ...

    def grow(self, s: VllmSequence, end: int, now: int) -> bool:
        """Give a running request room up to ``end`` tokens; False where blocks are too few."""
        ...

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether a request of so many tokens has room on an empty GPU."""
        ...


class BlockPool(GpuStore, Protocol):
    """A store that is vLLM's block pool."""

    def idle_hits(self, request: int, hits: int) -> int:
        """Return how many of the first ``hits`` blocks found for a request nobody holds."""
        ...

    def free_queue(self) -> list[int | None]:
        """Return the keys of the free blocks, next to be taken first; None where there is none."""
        ...


def _free_blocks(store: GpuStore) -> int:
    room = store.room(COMPUTE)
    return room.free_blocks + room.evictable_blocks


@dataclass(slots=True)
class PoolBlocks:
    """The blocks of one cache group."""

    cache: CacheSettings
    store: BlockPool

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.cache.block_size_tokens)

    def begin_step(self) -> None:
        """Do nothing: what is computed in a step may be hit in it."""

    def admit(self, asked: Newcomer, now: int) -> Entry | None:
        """Admit a request where its first chunk has room, and all of it where that is asked."""
        store, request = self.store, asked.request
        hits = store.peek(request, asked.matchable_blocks)[0]
        cached = hits * self.cache.block_size_tokens
        end = min(asked.known_tokens, cached + asked.step_tokens)
        room = _free_blocks(store) - store.idle_hits(request, hits) - asked.kept_blocks
        fresh = self._blocks(end) - hits
        if fresh > room or (asked.whole and self._blocks(asked.known_tokens) - hits > room):
            return None
        lease = store.acquire(request, hits)
        store.reserve_many([(lease, fresh)], now)
        return Entry(lease, hits, end)

    def chunk(self, s: VllmSequence, tokens: int) -> int:
        """Return all of them."""
        return tokens

    def grow(self, s: VllmSequence, end: int, now: int) -> bool:
        """Take the blocks that are missing."""
        blocks = self._blocks(end) - s.blocks
        if blocks > _free_blocks(self.store):
            return False
        if blocks > 0:
            self.store.reserve_many([(s.state.lease, blocks)], now)
            s.blocks += blocks
        return True

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether the pool has as many blocks."""
        return self._blocks(kv_tokens) <= self.store.room(COMPUTE).capacity_blocks


@dataclass(slots=True)
class GroupBlocks:
    """The blocks of several cache groups."""

    store: GroupStore
    steps_in_flight: int

    def begin_step(self) -> None:
        """Tell the pool: a state that is computed in a step cannot be gone on from in it."""
        self.store.begin_step()

    def admit(self, asked: Newcomer, now: int) -> Entry | None:
        """Admit a request as the groups' rules do."""
        lease, hits, room_tokens = self.store.admit(asked, now)
        return None if lease is None else Entry(lease, hits, room_tokens)

    def chunk(self, s: VllmSequence, tokens: int) -> int:
        """Return so many that a state ends where it can be kept."""
        return self.store.chunk(s.state.lease, s.computed, s.known, tokens)

    def grow(self, s: VllmSequence, end: int, now: int) -> bool:
        """Give back what no step that is under way reads, then take what is missing."""
        return self.store.grow(s.state.lease, (s.computed - s.in_flight, end), now)

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether the pool has the blocks that it holds at one time."""
        most = self.store.most_blocks(kv_tokens, self.steps_in_flight)
        return most <= self.store.room(COMPUTE).capacity_blocks


def blocks_of(machine: Machine, steps_in_flight: int) -> Blocks:
    """Return the blocks of a machine under vLLM's rules."""
    if machine.groups is not None:
        return GroupBlocks(machine.groups, steps_in_flight)
    return PoolBlocks(machine.cache, cast(BlockPool, machine.store))

"""Admission: match the prefix, plan what to reuse and load, reserve room, all or nothing."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from kvcache_sim.cache.fetch import FETCH
from kvcache_sim.cache.fetch.plan import Part
from kvcache_sim.cache.fetch.policy import FetchPolicy
from kvcache_sim.cache.group_store import GroupStore
from kvcache_sim.cache.groups import Newcomer
from kvcache_sim.cache.loader import Loader
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.remote import RemoteRun
from kvcache_sim.cache.store import NO_MOVE, LoadingStore
from kvcache_sim.serving.estimates import Estimates
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.tiers import COMPUTE, PLACES, REMOTE, STAGING
from kvcache_sim.values import dataclass

_NONE_BELOW = (0,) * (len(PLACES) - 1)


@dataclass(slots=True)
class Admission:
    """What an admitted request holds: its lease, blocks reused by tier, and what it must wait for."""

    lease: int
    reused_blocks: int
    total_blocks: int
    #: Reused blocks by the place they came from.
    from_place: list[int]
    #: Moves that free its room.
    room: list[int] = field(default_factory=list)
    #: Moves that bring its KV, with the tier each comes from.
    loads: list[tuple[int, int]] = field(default_factory=list)
    #: Of the reused blocks those that a shared pool gave.
    pool_blocks: int = 0


class Admitter:
    """Admits requests to one machine's cache."""

    def __init__(
        self,
        machine: Machine,
        outcomes: Outcomes,
        estimates: Estimates,
        lost_blocks: int = 0,
    ) -> None:
        self.outcomes = outcomes
        self.store = machine.store
        self.groups = machine.groups
        self.loading_groups = machine.loading_groups
        self.chunk_tokens = machine.cache.groups.max_num_batched_tokens if machine.cache.groups else 0
        self.mover = machine.mover
        self.block = machine.cache.block_size_tokens
        self.enabled = machine.cache.enabled
        self.matchable_blocks = machine.cache.matchable_blocks
        self.fetches = machine.movement.fetch != "never"
        self.fetch: FetchPolicy = FETCH.make(machine.movement.fetch)
        self.estimates = estimates
        #: Blocks at the end of every hit that are computed again (EAGLE).
        self.lost_blocks = lost_blocks
        self.loader = machine.loader
        self.remote = machine.remote
        #: What the shared pool is called where it is read; None: there is none.
        self.pool_number = None if machine.pool is None else machine.pool.mover.machine
        self.expire = machine.expire if machine.expires else None

    def admit(self, s: SequenceState, step_tokens: int, now_ns: int) -> Admission | Literal["later"] | None:
        """Admit a request whose tokens need KV; None, without a trace, when room is refused.

        ``step_tokens`` are those of the step that are left; "later" where they are too few for cache groups.
        """
        if self.groups is not None:
            return self._admit_to_groups(self.groups, s, step_tokens, now_ns)
        store, request, tokens = self.store, s.request, s.prefill_target_tokens
        total = -(-tokens // self.block)
        limit = self.matchable_blocks(tokens)
        if self.expire is not None:
            self.expire()
        found, ready = store.peek(request, limit) if self.enabled else (0, 0)
        found = max(found - self.lost_blocks, 0)
        ready = min(ready, found)
        away = (
            self.remote.longest(request, found, limit)
            if self.remote and self.fetches and found < limit
            else None
        )
        everywhere = found if away is None else away.end
        reusable = self.outcomes.reusable_blocks(s, everywhere, now_ns)
        ready = min(ready, reusable)
        if reusable > ready:
            assert self.loader is not None, "what a GPU alone has is ready"
            parts = _parts(self.loader.store, request, min(found, reusable))
            return self._admit_with_loads(s, self.loader, [*parts, *_remote_parts(away, reusable)], now_ns)
        lease = store.acquire(request, ready)
        room = store.reserve(lease, total - ready, now_ns)
        if room is None:
            store.abandon(lease)
            return None
        return Admission(lease, ready, total, [ready, *_NONE_BELOW], room)

    def _admit_to_groups(
        self, groups: GroupStore, s: SequenceState, step_tokens: int, now_ns: int
    ) -> Admission | Literal["later"] | None:
        """Admit a request with what is cached of it and room for its first step, in tokens."""
        tokens = s.prefill_target_tokens
        limit = self.matchable_blocks(tokens)
        asked = Newcomer(s.request, tokens, tokens, limit, step_tokens, self.chunk_tokens)
        lease, hits, room = groups.admit(asked, now_ns)
        if lease is None:
            return "later" if hits else None
        admission = Admission(lease, hits, room, [hits, *_NONE_BELOW])
        if self.loading_groups is not None:
            brought = self.loading_groups.brought(lease)
            admission.room, admission.loads = brought.room, brought.loads
            below = hits - brought.in_pool_blocks
            admission.from_place[COMPUTE] -= below
            admission.from_place[STAGING] += below
        return admission

    def _admit_with_loads(
        self, s: SequenceState, loader: Loader, parts: list[Part], now_ns: int
    ) -> Admission | None:
        store, request, tokens = loader.store, s.request, s.prefill_target_tokens
        total = -(-tokens // self.block)
        ready = parts[0][2] if parts[0][0] == COMPUTE and parts[0][3] == NO_MOVE else 0
        depth = self.fetch.reuse(self.estimates.plan(parts, ready, tokens))
        reusable = [p._replace(end=min(p.end, depth)) for p in parts if p.start < depth]
        held = [
            (p.tier, store.protect(request, p.end, p.tier)) for p in reusable if COMPUTE < p.tier < REMOTE
        ]
        joined = sum(p.end - p.start for p in reusable if p.tier == COMPUTE and p.by != NO_MOVE)
        lease = store.acquire(request, ready)
        # Blocks that someone else is loading have their room already.
        room = store.reserve(lease, total - ready - joined, now_ns)
        if room is None:
            store.abandon(lease)
            for tier, hold in held:
                store.unprotect(tier, hold)
            return None
        admission = Admission(lease, ready, total, [ready, *_NONE_BELOW], room)
        for part in reusable:
            if part[2] > ready:
                load = loader.load(request, lease, part, room, now_ns)
                if load is None:  # there is no room to stage it
                    break
                admission.loads.append(load)
                admission.from_place[part.tier] += part.end - part.start
                if part.away is not None and part.away[0] == self.pool_number:
                    admission.pool_blocks += part.end - part.start
                admission.reused_blocks = part.end
        for tier, hold in held:
            store.unprotect(tier, hold)
        return admission


def _parts(store: LoadingStore, request: int, blocks: int) -> list[Part]:
    """Return a found run of so many blocks in parts."""
    return [Part(*part) for part in store.match_prefix(request, blocks)] if blocks else []


def _remote_parts(away: RemoteRun | None, end: int) -> list[Part]:
    """Return what one other machine has before block ``end``, in parts."""
    if away is None:
        return []
    return [
        Part(REMOTE, first, min(last, end), by, (away.owner, tier))
        for tier, first, last, by in away.parts
        if first < end
    ]

"""Admission: match the prefix, plan reuse, reserve blocks, order loads (seed 000, 3.2; semantics 2, 4).

A request looks its prefix up once per admission, over the prompt and tokens generated before a preemption.
At most floor((n - 1) / block size) blocks of n tokens hit, so a token is left to prefill (semantics 1). The
local run is extended by another machine's, cut to what may be shared, and then to what the fetch policy
reuses. Blocks for the whole prompt are reserved all or nothing: if refused, the request holds nothing.
Blocks found below the GPU are held there until their reads have been ordered (seed 001,
``_lookup_and_fetch_from_remote``, ``move_to_gpu``). Parts are loaded tier by tier; a part that cannot be
staged ends the reuse before it, and the rest is recomputed.
"""

from __future__ import annotations

from msgspec import Struct

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, REMOTE, STAGING
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.spec.batch import Batch
from kvcache_sim.spec.block_store import BlockStore, Part
from kvcache_sim.spec.lookups import LookUps
from kvcache_sim.spec.movement_policies import FETCH, Plan, WritePolicies
from kvcache_sim.spec.mover import Mover, Staged, is_staged, stage_up
from kvcache_sim.spec.records import Milestones
from kvcache_sim.spec.remote import RemoteReads
from kvcache_sim.spec.request import Admission, HeldPart, OrderedLoad, SequenceState


class Parts(Struct):
    """The parts of one machine except its scheduler."""

    store: BlockStore
    mover: Mover
    batch: Batch
    milestones: Milestones
    lookups: LookUps
    remote: RemoteReads | None
    writes: WritePolicies | None
    #: True if a tier's policy gives blocks a time to live.
    expires: bool


class Admitter:
    """Admits requests to the cache of one machine."""

    def __init__(self, parts: Parts, cache: CacheSettings, movement: MovementSettings) -> None:
        self.parts, self.store, self.mover = parts, parts.store, parts.mover
        self.cache, self.movement = cache, movement
        #: True if a run waits for space to stage it. A load that waits for its step would occupy it.
        self._rests_wait = cache.overflow == "wait" and movement.read_buffer_layers is None

    def admit(self, s: SequenceState, now: int) -> Admission | None:
        """Match the prefix, plan the reuse, and reserve blocks; None, with nothing changed, if refused."""
        store, request, tokens = self.store, s.request, s.prefill_target_tokens
        total = -(-tokens // self.cache.block_size_tokens)
        found = self._match(s, now)
        ready = found[0].end if found and found[0].tier == COMPUTE and found[0].by == NO_MOVE else 0
        if found and found[-1].end > ready:
            found = _cut(found, self._reused(Plan(found, ready, tokens)))
        here = [part for part in found if part.end > ready and part.tier < REMOTE]
        held = [HeldPart(part.end, store.lend(request, part.end, part.tier)) for part in here]
        # Blocks that another request is loading are reserved already, as are those computed behind them.
        joined = sum(part.end - part.start for part in here if part.tier == COMPUTE)
        lease = store.acquire(request, ready)
        freeing_moves = store.reserve(lease, total - ready - joined, now)
        admission = None
        if freeing_moves is None:
            store.abandon(lease)
        else:
            from_source = [ready] + [0] * (len(KV_SOURCES) - 1)
            admission = Admission(lease, ready, total, from_source, freeing_moves, [])
            self._load_parts(s, admission, [part for part in found if part.end > ready], now)
        rest_end = 0 if admission is None else admission.rest_end
        for part_held in held:
            if part_held.end > rest_end:  # it keeps space from what waits
                store.finish_move(part_held.hold)
        if admission is not None and rest_end:
            admission.held = [part_held for part_held in held if part_held.end <= rest_end]
            self.load_rest(request, admission, now)
        return admission

    def _reused(self, plan: Plan) -> int:
        """Return the number of leading blocks of a found run to reuse."""
        return FETCH[self.movement.fetch](plan)

    def _match(self, s: SequenceState, now: int) -> list[Part]:
        """Return the run of leading blocks that may be reused, in parts: here, then on one other machine."""
        limit, remote = self.cache.matchable_blocks(s.prefill_target_tokens), self.parts.remote
        if self.parts.expires:
            self.store.expire(now)
        if self.cache.accounting == "simplified":
            blocks = self.store.peek(s.request, limit)[0]
            found = [Part(COMPUTE, 0, blocks, NO_MOVE)] if blocks else []
        else:
            found = [Part(*part) for part in self.store.match_prefix(s.request, limit)] if limit else []
        end = found[-1].end if found else 0
        if remote is not None and self.movement.fetch != "never" and end < limit:
            found += remote.longest(s.request, end, limit)
        reach = found[-1].end if found else 0
        return _cut(found, self.parts.lookups.reusable_blocks(s, reach, now))

    def _load_parts(self, s: SequenceState, admission: Admission, parts: list[Part], now: int) -> None:
        """Load the parts of a run one after the other, until a part cannot be staged or stored here.

        The rest of the run on this machine then waits for space on the tiers that it is staged on.
        """
        slowest = STAGING
        for part in parts:
            load = None if admission.rest_end else self._load(s.request, admission, part, now)
            if load is not None:
                admission.loads.append(load)
            elif slowest <= part.tier < REMOTE and self._rests_wait:
                admission.rest_end, slowest = part.end, part.tier
            else:
                return
            admission.from_source[part.tier] += part.end - part.start
            admission.reused_blocks = part.end

    def load_rest(self, request: int, admission: Admission, now: int) -> None:
        """Load more of a run that waits for space. No two runs wait for each other.

        A run waits for tiers faster than the one it reads next, and holds blocks on that one and slower ones.
        """
        start = self._load_more(request, admission, now)
        for held in admission.held:
            if held.end <= start:
                self.store.finish_move(held.hold)
        admission.held = [held for held in admission.held if held.end > start]
        if start == admission.rest_end:
            admission.rest_end = 0

    def _load_more(self, request: int, admission: Admission, now: int) -> int:
        """Load from the front as much as the tiers above can store; return the block after the last one."""
        start = self.store.depth(admission.lease)
        for found in self.store.match_prefix(request, admission.rest_end):
            if (part := Part(*found)).end > start:
                free = [self.store.occupancy(tier) for tier in range(STAGING, part.tier)]
                end = min([part.end, *(start + use.free_blocks + use.cached_blocks for use in free)])
                cut = part._replace(start=start, end=end)
                load = self._load(request, admission, cut, now) if end > start else None
                if load is None:
                    break
                admission.loads.append(load)
                start = end
                if end < part.end:
                    break
        return start

    def _load(self, request: int, admission: Admission, part: Part, now: int) -> OrderedLoad | None:
        """Load one part tier by tier; return the move to the GPU, None if it cannot be staged."""
        store, mover = self.store, self.mover
        if part.tier == COMPUTE:  # another request loads it
            store.join(admission.lease, part.end)
            transfer = mover.transfers.get(part.by)
            return OrderedLoad(part.by, STAGING if transfer is None else transfer.from_tier)
        after = list(admission.freeing_moves)
        if part.tier == REMOTE:
            assert self.parts.remote is not None
            landed = self.parts.remote.fetch(request, part, now)
            if landed is None:
                return None
            after.append(landed)
        elif part.tier > STAGING:
            copies = self._stage_up(request, part, now)
            if not is_staged(copies):
                return None
            after.append(copies[-1].move)
        elif part.by != NO_MOVE:
            after.append(part.by)
        return OrderedLoad(store.load(admission.lease, part.end, after), part.tier)

    def _stage_up(self, request: int, part: Part, now: int) -> list[Staged]:
        return stage_up(self.store, request, part, now)


def _cut(parts: list[Part], end: int) -> list[Part]:
    """Return the parts of a run before block ``end``."""
    return [part._replace(end=min(part.end, end)) for part in parts if part.start < end]

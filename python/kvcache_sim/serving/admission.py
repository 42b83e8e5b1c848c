"""Admission: match the prefix, plan what to reuse and load, reserve room, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.cache.store import NO_MOVE, BlockStore
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.sequence import SequenceState

GPU, CPU, DISK = 0, 1, 2


@dataclass(slots=True)
class Admission:
    """What an admitted request holds: its lease, blocks reused by tier, and what it must wait for."""

    lease: int
    reused_blocks: int
    total_blocks: int
    #: Reused blocks by the tier they came from.
    from_tier: list[int] = field(default_factory=lambda: [0, 0, 0])
    #: Moves that free its room.
    room: list[int] = field(default_factory=list)
    #: Moves that bring its KV, with the tier each comes from.
    loads: list[tuple[int, int]] = field(default_factory=list)


class Admitter:
    """Admits requests to one machine's cache."""

    def __init__(
        self,
        store: BlockStore,
        mover: Mover,
        settings: tuple[CacheSettings, MovementSettings],
        outcomes: Outcomes,
    ) -> None:
        cache, movement = settings
        self.outcomes = outcomes
        self.store = store
        self.mover = mover
        self.block = cache.block_size_tokens
        self.enabled = cache.enabled
        self.skip_prefill = cache.full_hit == "skip-prefill"
        self.fetches = movement.fetch != "never"

    def matchable_blocks(self, tokens: int) -> int:
        """Return how many leading blocks of that many tokens may hit (semantics 1)."""
        if not self.enabled:
            return 0
        return tokens // self.block if self.skip_prefill else (tokens - 1) // self.block

    def admit(self, s: SequenceState, now_ns: int) -> Admission | None:
        """Admit a request whose tokens need KV; None, without a trace, when room is refused."""
        store, request, tokens = self.store, s.request, s.prefill_target_tokens
        total = -(-tokens // self.block)
        found, ready = store.peek(request, self.matchable_blocks(tokens)) if self.enabled else (0, 0)
        reusable = self.outcomes.reusable_blocks(s, found, now_ns)
        if reusable < found:
            found, ready = reusable, min(ready, reusable)
        if found > ready:
            return self._admit_with_loads(request, found, total, now_ns)
        lease = store.acquire(request, ready)
        room = store.reserve(lease, total - ready, now_ns)
        if room is None:
            store.abandon(lease)
            return None
        return Admission(lease, ready, total, [ready, 0, 0], room)

    def _admit_with_loads(self, request: int, found: int, total: int, now_ns: int) -> Admission | None:
        store = self.store
        parts = store.match_prefix(request, found)
        ready = parts[0][2] if parts[0][0] == GPU and parts[0][3] == NO_MOVE else 0
        reusable = parts if self.fetches else [p for p in parts if p[0] == GPU]
        held = [(tier, store.protect(request, end, tier)) for tier, _, end, _ in reusable if tier != GPU]
        joined = sum(end - start for tier, start, end, by in reusable if tier == GPU and by != NO_MOVE)
        lease = store.acquire(request, ready)
        # Blocks that someone else is loading have their room already.
        room = store.reserve(lease, total - ready - joined, now_ns)
        if room is None:
            store.abandon(lease)
            for tier, hold in held:
                store.unprotect(tier, hold)
            return None
        admission = Admission(lease, ready, total, [ready, 0, 0], room)
        for part in reusable:
            if part[2] > ready and not self._take(request, admission, part, now_ns):
                break
        for tier, hold in held:
            store.unprotect(tier, hold)
        return admission

    def _take(self, request: int, admission: Admission, part: tuple[int, int, int, int], now_ns: int) -> bool:
        """Join or load one part of the found run; False when there is no room to stage it."""
        tier, start, end, by = part
        store, lease = self.store, admission.lease
        if tier == GPU:
            store.join(lease, end)
            admission.loads.append((by, self._source_of(by)))
        else:
            after = list(admission.room)
            if tier == DISK:
                staged = store.stage(request, (start, end), CPU, None if by == NO_MOVE else by, now_ns)
                if staged is None:
                    return False
                after.append(staged)
            elif by != NO_MOVE:
                after.append(by)
            admission.loads.append((store.load(lease, end, after), tier))
        admission.from_tier[tier] += end - start
        admission.reused_blocks = end
        return True

    def _source_of(self, move: int) -> int:
        transfer: Transfer | None = self.mover.transfers.get(move)
        return CPU if transfer is None else transfer.from_tier

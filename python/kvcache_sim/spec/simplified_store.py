"""The cache under simplified accounting: memory is a count of unique tokens (seed 000, 3.5).

The tokens of a session's last turn and of a shared prefix count as resident: reusing them takes no further
memory. The batch sees blocks of one token, so every amount here is a number of tokens. A request holds the
longest shared prefix of its prompt; beyond it, it takes over the tokens that its session kept, and further
reused tokens are counted again with its reservation. Computed tokens are private, until ``commit`` shares
them in whole blocks as far as prefixes are admitted. After a turn the session keeps the tokens that are not a
shared prefix. Over capacity the oldest entry without a running user is evicted, session or prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from kvcache_sim.cache.store import EvictionCounts, Occupancy, Order, Times, Wanted
from kvcache_sim.spec.lookups import LookUps
from kvcache_sim.spec.prefix_store import PrefixHash
from kvcache_sim.spec.records import RollingDigest
from kvcache_sim.spec.residency import UNBOUNDED, refused


@dataclass(slots=True)
class _Kept:
    """The tokens that a session keeps: a shared prefix and tokens after it; ``users``: leases on it."""

    last: PrefixHash | None
    access: int
    remainder: int = 0
    users: int = 1


@dataclass(slots=True)
class _Lease:
    request: int
    #: Leading blocks held as shared prefixes: now, and when it was acquired.
    blocks: int
    first_blocks: int
    #: Tokens reused or computed.
    depth: int
    private: int
    #: Tokens reused whose memory is counted with the next reservation.
    owed: int
    #: Its session's tokens, of which it took over ``taken``.
    kept: _Kept | None
    taken: int


class SimplifiedStore:
    """Unique tokens on one tier: of shared prefixes, of sessions, and private ones of running requests."""

    def __init__(self, lookups: LookUps, capacity: int | None) -> None:
        self.trace, self.engine = lookups.trace, lookups.engine
        self.prefixes, self.sessions = lookups.prefixes, lookups.sessions
        self._block, self._prefixes = lookups.shared_block_tokens, lookups.path
        #: Tokens of the tier; None without bound.
        self.capacity = capacity
        self.sessions.on_forgotten = self._drop_session
        lookups.keep_session = self.keep_session
        self._kept: dict[str, _Kept] = {}
        self._leases: dict[int, _Lease] = {}
        self._handles = count(1)
        self._remainders = self._private = self._evicted = 0
        self._digest = RollingDigest()

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return the tokens found, and ready, up to ``limit``: the session's, else of a shared prefix."""
        prefixes = self._prefixes(request, limit // self._block)
        criteria = self.prefixes.criteria
        admitted = prefixes[: criteria.admitted_blocks(prefixes)]
        shared = self.prefixes.longest(admitted, criteria.min_blocks) * self._block
        found = max(self._of_session(request, limit), shared)
        return found, found

    def _of_session(self, request: int, limit: int) -> int:
        info = self.sessions.known(self._session_id(request), self.engine.now_ns)
        if info is None:
            return 0
        total = info.total_tokens_in_cache
        # the history within the context window; without a window the prompt must be longer than the history
        history = int(self.trace.history_tokens[request]) if len(self.trace.history_tokens) else -1
        if history < 0:
            return min(total, limit) if self.trace.input_tokens[request] > total else 0
        return min(total, history, limit)

    def _session_id(self, request: int) -> str | None:
        return self.trace.session_id(int(self.trace.session[request]))

    def _lease(self, lease: int) -> _Lease:
        if lease not in self._leases:
            raise refused("no such lease", "one that is held")
        return self._leases[lease]

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` tokens, which ``peek`` found; return the lease."""
        blocks = self.prefixes.hold_longest(self._prefixes(request, depth // self._block))
        reused = depth - blocks * self._block
        kept = self._kept.get(self._session_id(request) or "") if reused else None
        taken = 0
        if kept is not None:
            taken = min(kept.remainder, reused)
            kept.users += 1
            kept.remainder -= taken
            self._remainders -= taken
            self._private += taken
        handle = next(self._handles)
        self._leases[handle] = _Lease(request, blocks, blocks, depth, taken, reused - taken, kept, taken)
        return handle

    def abandon(self, lease: int) -> None:
        """Undo an acquisition without an effect on recency."""
        self._end(lease, None)

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease and touch its prefix; its private tokens are free."""
        self._end(lease, self.engine.now_ns)

    def _end(self, lease: int, now_ns: int | None) -> None:
        left = self._lease(lease)
        del self._leases[lease]
        self._private -= left.private
        self.prefixes.end_use(self._prefixes(left.request, left.blocks), now_ns)
        self._return_to_session(left)

    def _return_to_session(self, left: _Lease) -> None:
        """Return to a session the tokens that a lease took over, as after a preemption."""
        session_id, kept = self._session_id(left.request), left.kept
        if session_id is None or kept is None or self._kept.get(session_id) is not kept:
            return
        kept.users -= 1
        if left.blocks == left.first_blocks:
            kept.remainder += left.taken
            self._remainders += left.taken
        elif not kept.users:  # some of its tokens have become shared prefixes since, which replace them
            info = self.sessions.active_sessions_kv_state[session_id]
            if not self.keep_session(left.request, session_id, info.total_tokens_in_cache):
                self.sessions.forget(session_id)

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve memory for ``blocks`` new tokens; None if refused."""
        return self.reserve_many([Wanted(lease, blocks)], now_ns)

    def reserve_many(self, wanted: Sequence[Wanted], now_ns: int) -> list[int] | None:
        """Reserve memory for several leases, all or nothing."""
        lacking = sum(tokens + self._lease(lease).owed for lease, tokens in wanted)
        if not self._make_space(lacking) and not (self._forget_own() and self._make_space(lacking)):
            return None
        for lease, tokens in wanted:
            held = self._lease(lease)
            held.private += tokens + held.owed
            self._private += tokens + held.owed
            held.owed = 0
        return []

    def commit(self, lease: int, to: int, ready: Times | None = None) -> None:
        """Share the computed tokens up to ``to`` in whole blocks, as far as prefixes are admitted."""
        held = self._lease(lease)
        held.depth, before = to, held.blocks
        held.blocks = self.prefixes.enter(self._prefixes(held.request, to // self._block), before)
        held.private -= (held.blocks - before) * self._block
        self._private -= (held.blocks - before) * self._block

    @property
    def merged_blocks(self) -> int:
        """Tokens computed twice and merged."""
        return self.prefixes.merged_blocks * self._block

    def depth(self, lease: int) -> int:
        """Return the number of tokens that the lease reuses or has shared."""
        return self._lease(lease).depth

    def keep_session(self, request: int, session_id: str, tokens: int) -> bool:
        """Keep a finished turn's tokens in place of the last turn's; return True if there is space."""
        self._drop_session(session_id)
        prefixes = self._prefixes(request, -(-tokens // self._block))
        blocks = self.prefixes.hold_longest(prefixes)
        kept = _Kept(prefixes[blocks - 1] if blocks else None, self.prefixes.access)
        self._kept[session_id] = kept
        remainder = max(tokens - blocks * self._block, 0)
        if not self._make_space(remainder):
            self._drop_session(session_id)
            return False
        kept.users, kept.remainder = 0, remainder
        self._remainders += remainder
        return True

    def _forget_own(self) -> bool:
        """Forget the session of a lone request: tokens that both count would keep it from ever fitting."""
        held, before = next(iter(self._leases.values())), self.used
        session_id = self._session_id(held.request) or ""
        if len(self._leases) > 1 or held.kept is None or self._kept.get(session_id) is not held.kept:
            return False
        self.sessions.forget(session_id)
        self._evicted += before - self.used
        return True

    def _drop_session(self, session_id: str) -> None:
        kept = self._kept.pop(session_id, None)
        if kept is not None:
            self._remainders -= kept.remainder
            if kept.last is not None:
                self.prefixes.release(kept.last)

    @property
    def used(self) -> int:
        """Unique tokens in memory."""
        return self.prefixes.tokens + self._remainders + self._private

    def occupancy(self, tier: int) -> Occupancy:
        """Return the use of the tier's tokens."""
        capacity = UNBOUNDED if self.capacity is None else self.capacity
        held = self._private + self._in_use()
        return Occupancy(capacity - self.used, held, self.used - held, 0, self._private)

    def _in_use(self) -> int:
        """Return the tokens that running requests keep from being evicted. Cost: these tokens."""
        used = [kept for kept in self._kept.values() if kept.users]
        held = [lease for lease in self._leases.values() if lease.blocks]
        ends = [self._prefixes(lease.request, lease.blocks)[-1] for lease in held]
        ends += [kept.last for kept in used if kept.last is not None]
        blocks: set[PrefixHash] = set()
        for end in ends:
            for entry in self.prefixes.global_prefix_store[end].chain():
                if entry.prefix_hash in blocks:
                    break
                blocks.add(entry.prefix_hash)
        return len(blocks) * self._block + sum(kept.remainder for kept in used)

    def _make_space(self, tokens: int) -> bool:
        """Evict the shortfall, the oldest unused entry first; False, and no change, if it is too much."""
        if self.capacity is None or self.used + tokens <= self.capacity:
            return True
        fits = self._private + self._in_use() + tokens <= self.capacity
        while fits and self.used + tokens > self.capacity:
            self._evict_oldest()
        return fits

    def _evict_oldest(self) -> None:
        before, prefix = self.used, self.prefixes.oldest_unused()
        session_id = next((name for name, kept in self._kept.items() if not kept.users), None)
        if session_id is not None and (prefix is None or self._kept[session_id].access < prefix.access):
            self.sessions.forget(session_id)
        else:
            assert prefix is not None, "an unused entry is evictable"
            self.prefixes.evict(prefix)
        self._evicted += before - self.used

    def eviction_counts(self, tier: int) -> EvictionCounts:
        """Return the tokens that have left the tier so far."""
        return EvictionCounts(self._evicted + self.prefixes.evicted_blocks * self._block, 0, 0)

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""
        self._digest.record(kind, now_ns, subject, value)

    @property
    def digest(self) -> int:
        """The rolling hash so far."""
        return self._digest.value

    def take_orders(self) -> list[Order]:
        """Return no transmissions: there is one tier."""
        return []

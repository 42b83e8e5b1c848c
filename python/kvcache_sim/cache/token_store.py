"""The cache under simplified accounting: memory is a count of unique tokens (seed 000, 3.5).

What a session's last turn or a shared prefix holds is assumed to be resident, and reusing it takes no memory
again. Seen from the batch its blocks are single tokens: every amount here is a number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvcache_sim.cache.digest import Digest
from kvcache_sim.cache.prefix_view import GlobalPrefixStore, PrefixAdmission, PrefixHash
from kvcache_sim.cache.session_view import SessionView
from kvcache_sim.cache.store import Losses, Room
from kvcache_sim.errors import StoreError

_UNBOUNDED = 1 << 60


class Keys(Protocol):
    """What names the blocks of requests: equal keys are equal prefixes."""

    def key(self, request: int, block: int) -> PrefixHash:
        """Return the key of a block of a request's prompt and answer."""
        ...


@dataclass(frozen=True, slots=True)
class Prompts:
    """The columns of the trace that the views read, by request."""

    session_ids: Sequence[str | None]
    input_tokens: Sequence[int]
    #: Prompt tokens that a context window left of the session's history; −1 where the trace does not say.
    history_tokens: Sequence[int]


@dataclass(slots=True)
class _Held:
    """What a session keeps: leading blocks as shared prefixes, and the tokens after them."""

    last: PrefixHash | None
    remainder: int
    access: int
    users: int = 0


@dataclass(slots=True)
class _Lease:
    request: int
    #: Leading blocks held as shared prefixes: now, and when it was acquired.
    blocks: int
    first_blocks: int
    #: Tokens reused or computed.
    depth: int
    private: int
    #: Tokens reused whose memory is not counted yet: ``reserve`` adds them.
    owed: int
    #: What its session kept, of which it took ``taken`` tokens over.
    held: _Held | None
    taken: int


@dataclass(slots=True)
class TokenStore:
    """Unique tokens on one tier: shared prefixes, what sessions keep, and what running requests added.

    ``capacity`` in tokens, None without bound. Over capacity the oldest unused entry goes, session or
    prefix. Cost: a dictionary operation a block; touching a prefix walks to its start.
    """

    keys: Keys
    prompts: Prompts
    block_size_tokens: int
    capacity: int | None
    sessions: SessionView
    admission: PrefixAdmission
    now_ns: Callable[[], int]
    records: Digest
    prefixes: GlobalPrefixStore = field(init=False)
    #: Tokens computed twice and merged.
    merged_blocks: int = 0
    _held: dict[str, _Held] = field(default_factory=dict)
    _leases: dict[int, _Lease] = field(default_factory=dict)
    _next_lease: int = 0
    _access: int = 0
    _remainders: int = 0
    _private: int = 0
    _evicted: int = 0
    _log: list[tuple[int, int, int]] | None = None

    def __post_init__(self) -> None:
        self.prefixes = GlobalPrefixStore(self.block_size_tokens)
        self.sessions.when_forgotten(self.drop_session)

    # -- looking

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return the tokens found and ready, of the first ``limit``: the session's, else a shared prefix."""
        found = max(
            self._of_session(request, limit), self._shared_blocks(request, limit) * self.block_size_tokens
        )
        return found, found

    def _of_session(self, request: int, limit: int) -> int:
        session = self.prompts.session_ids[request]
        info = None if session is None else self.sessions.known(session, self.now_ns())
        if info is None:
            return 0
        told, total = self.prompts.history_tokens[request], info.total_tokens_in_cache
        if self.prompts.input_tokens[request] <= total and told < 0:
            return 0  # another prompt than the session's: unrelated as far as anyone knows
        return min(total, limit) if told < 0 else min(total, told, limit)

    def _shared_blocks(self, request: int, limit: int) -> int:
        prefixes = self._prefixes(request, limit // self.block_size_tokens)
        admitted = self.admission.admitted_blocks(prefixes)
        return self.prefixes.longest(prefixes[:admitted], self.admission.shortest_blocks)

    def _prefixes(self, request: int, blocks: int) -> list[PrefixHash]:
        return [self.keys.key(request, block) for block in range(blocks)]

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the last token, users, access) of each shared prefix of a prompt."""
        parts = []
        for prefix in self._prefixes(request, limit // self.block_size_tokens):
            entry = self.prefixes.get(prefix)
            if entry is None:
                break
            parts.append((entry.length, entry.reference_count, entry.access))
        return parts

    # -- leases

    def _lease(self, number: int) -> _Lease:
        held = self._leases.get(number)
        if held is None:
            raise StoreError("no such lease", "store", "", "one that is held")
        return held

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` tokens, which ``peek`` found; return the lease."""
        prefixes = self._prefixes(request, depth // self.block_size_tokens)
        blocks = self.prefixes.longest(prefixes, 1)
        if blocks:
            self.prefixes.acquire(prefixes[blocks - 1])
        reused = depth - blocks * self.block_size_tokens
        held = self._held.get(self.prompts.session_ids[request] or "") if reused else None
        taken = 0
        if held is not None:
            taken = min(held.remainder, reused)
            held.users += 1
            held.remainder -= taken
            self._remainders -= taken
            self._private += taken
        self._next_lease += 1
        self._leases[self._next_lease] = _Lease(
            request, blocks, blocks, depth, taken, reused - taken, held, taken
        )
        return self._next_lease

    def abandon(self, lease: int) -> None:
        """Take an acquisition back without a trace."""
        left = self._lease(lease)
        del self._leases[lease]
        self._private -= left.private
        if left.blocks:
            self.prefixes.release(self.keys.key(left.request, left.blocks - 1))
        self._give_back(left)

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve memory for new tokens, each a block, evicting the shortfall; None when refused."""
        return self.reserve_many([(lease, blocks)], now_ns)

    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Reserve memory for several (lease, tokens), all or nothing."""
        del now_ns
        if not self._make_room(sum(tokens + self._lease(lease).owed for lease, tokens in wanted)):
            return None
        for lease, tokens in wanted:
            entry = self._lease(lease)
            entry.private += tokens + entry.owed
            self._private += tokens + entry.owed
            entry.owed = 0
        return []

    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Share the computed tokens up to ``to`` in whole blocks, as far as prefixes are admitted."""
        entry = self._lease(lease)
        entry.depth = to
        size = self.block_size_tokens
        while (entry.blocks + 1) * size <= to:
            key = self.keys.key(entry.request, entry.blocks)
            parent = self.keys.key(entry.request, entry.blocks - 1) if entry.blocks else None
            if self.prefixes.holds(key):
                self.merged_blocks += size
            elif self.admission.admitted(key) and self._make_prefix_room():
                self.prefixes.add(key, parent)
            else:
                return
            self.prefixes.acquire(key)
            if parent is not None:
                self.prefixes.release(parent)
            entry.blocks += 1
            entry.private -= size
            self._private -= size

    def _make_prefix_room(self) -> bool:
        """Make room for one block within the prefixes' own size limit; False where all are in use."""
        limit = self.admission.max_tokens
        while limit is not None and self.prefixes.tokens + self.block_size_tokens > limit:
            oldest = self.prefixes.oldest_unused()
            if oldest is None:
                return False
            self.prefixes.evict(oldest)
            self._count_eviction(self.block_size_tokens)
        return True

    def depth(self, lease: int) -> int:
        """Return how many tokens the lease reuses or has shared."""
        return self._lease(lease).depth

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease and touch its prefix; its private tokens are free."""
        left = self._lease(lease)
        del self._leases[lease]
        self._access += 1
        self._private -= left.private
        if left.blocks:
            key = self.keys.key(left.request, left.blocks - 1)
            self.prefixes.touch(key, self._access, self.now_ns())
            self.prefixes.release(key)
        self._give_back(left)

    def _give_back(self, left: _Lease) -> None:
        """Let the session have again what a lease took over from it, as after a preemption."""
        session = self.prompts.session_ids[left.request]
        if session is None or left.held is None or self._held.get(session) is not left.held:
            return
        left.held.users -= 1
        if left.blocks == left.first_blocks:
            left.held.remainder += left.taken
            self._remainders += left.taken
            return
        # Some of the session's tokens have become shared prefixes since: it keeps those instead.
        info = self.sessions.active_sessions_kv_state[session]
        if not left.held.users and not self.keep_session(left.request, session, info.total_tokens_in_cache):
            self.sessions.forget(session)

    # -- sessions

    def keep_session(self, request: int, session_id: str, tokens: int) -> bool:
        """Keep a finished turn's tokens for its session, in place of the last turn's; False without room."""
        self.drop_session(session_id)
        prefixes = self._prefixes(request, -(-tokens // self.block_size_tokens))
        blocks = self.prefixes.longest(prefixes, 1)
        held = _Held(prefixes[blocks - 1] if blocks else None, 0, self._access, users=1)
        if held.last is not None:
            self.prefixes.acquire(held.last)
        self._held[session_id] = held
        remainder = max(tokens - blocks * self.block_size_tokens, 0)
        if not self._make_room(remainder):
            self.drop_session(session_id)
            return False
        held.users = 0
        held.remainder = remainder
        self._remainders += remainder
        return True

    def drop_session(self, session_id: str) -> None:
        """Free what a session keeps; prefixes it shares become evictable."""
        held = self._held.pop(session_id, None)
        if held is None:
            return
        self._remainders -= held.remainder
        if held.last is not None:
            self.prefixes.release(held.last)

    # -- room

    @property
    def used(self) -> int:
        """Unique tokens in memory."""
        return self.prefixes.tokens + self._remainders + self._private

    def room(self, tier: int) -> Room:
        """Return how the tier's tokens are used."""
        del tier
        capacity = _UNBOUNDED if self.capacity is None else self.capacity
        cached = self.prefixes.tokens + self._remainders
        return Room(capacity - self.used, self._private, cached, 0, cached - self._pinned())

    def _pinned(self) -> int:
        """Return the tokens that running requests keep from being evicted."""
        ends = [self.keys.key(e.request, e.blocks - 1) for e in self._leases.values() if e.blocks]
        in_use = [held for held in self._held.values() if held.users]
        ends += [held.last for held in in_use if held.last is not None]
        pinned: set[PrefixHash] = set()
        for end in ends:
            entry = self.prefixes.get(end)
            while entry is not None and entry.prefix_hash not in pinned:
                pinned.add(entry.prefix_hash)
                entry = entry.parent
        return len(pinned) * self.block_size_tokens + sum(held.remainder for held in in_use)

    def _make_room(self, tokens: int) -> bool:
        """Evict the shortfall, oldest unused entry first; False, evicting nothing, where it is too much."""
        if self.capacity is None or self.used + tokens <= self.capacity:
            return True
        if self._private + self._pinned() + tokens > self.capacity:
            return False
        while self.used + tokens > self.capacity:
            self._evict_oldest()
        return True

    def _evict_oldest(self) -> None:
        before = self.used
        prefix = self.prefixes.oldest_unused()
        session = next((name for name, held in self._held.items() if not held.users), None)
        if session is not None and (prefix is None or self._held[session].access < prefix.access):
            self.sessions.forget(session)
        else:
            assert prefix is not None, "what is not pinned can go"
            self.prefixes.evict(prefix)
        self._count_eviction(before - self.used)

    def _count_eviction(self, tokens: int) -> None:
        self._evicted += tokens
        if tokens and self._log is not None:
            self._log.append((self.now_ns(), 0, tokens))

    def losses(self, tier: int) -> Losses:
        """Return how many tokens the tier has lost so far."""
        del tier
        return Losses(self._evicted, 0, 0)

    # -- records

    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the digest."""
        self.records.record(kind, now_ns, subject, value)

    @property
    def digest(self) -> int:
        """The rolling hash so far."""
        return self.records.value

    def log_evictions(self) -> None:
        """Start keeping evictions."""
        self._log = []

    def take_evictions(self) -> list[tuple[int, int, int]]:
        """Return (time, tier, tokens) of the evictions since the last call."""
        taken, self._log = self._log or [], None if self._log is None else []
        return taken

    def check(self) -> None:
        """Raise RuntimeError naming the first count that does not add up."""
        if self._private != sum(lease.private for lease in self._leases.values()):
            raise RuntimeError("I2: private tokens are not those of the leases")
        if self._remainders != sum(held.remainder for held in self._held.values()):
            raise RuntimeError("I2: sessions' tokens are not those of the sessions")
        if self.capacity is not None and self.used > self.capacity:
            raise RuntimeError(f"I2: {self.used} tokens in memory for {self.capacity}")
        if any(lease.private < 0 for lease in self._leases.values()):
            raise RuntimeError("I2: a lease holds less than nothing")
        if self._held.keys() != self.sessions.active_sessions_kv_state.keys():
            raise RuntimeError("I3: the sessions known are not the sessions held")

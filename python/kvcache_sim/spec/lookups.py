"""Sessions and the outcomes of lookups (seed 000, 3.1, 3.2 and 3.4; semantics 6).

``active_sessions_kv_state`` has one ``SessionCacheInfo`` per session, entered when a turn completes: the
turn's prompt, and the kept part of its answer. Sessions are bounded by number, the least recently updated
first, and by the time since their last turn. A request has one outcome, at its first admission. A turn
continues its known session if its prompt is longer than the session's total, or keeps a part of it that a
context window has left (seed 000, 4.5); with a resident run it is a CONVERSATIONAL_HIT. Another turn of a
known session is logged as CONVERSATIONAL_MISS_UNEXPECTED_PROMPT and treated like a request without a session:
a CROSS_REQUEST_HIT with a resident run, and without one a MISS_FULL. If no token is left to prefill,
FULL_HIT_NO_PREFILL_NEEDED is logged too. The length of a hit is the resident run: a follow-up reuses all of
it, another request the part that ``global_prefix_store`` admits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.cache.settings import CacheSettings, PrefixViewSettings
from kvcache_sim.engine import Engine
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.prefix_store import GlobalPrefixStore, PrefixCriteria, PrefixHash
from kvcache_sim.spec.records import CacheEvent, Records
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.trace import Trace

#: The five outcomes, by their code in a row.
CONVERSATIONAL_HIT, CROSS_REQUEST_HIT, MISS_FULL, FULL_HIT, UNEXPECTED_PROMPT = range(5)


@dataclass(frozen=True, slots=True)
class SessionCacheInfo:
    """The KV that a session's last completed turn left; the fields are seed 000's."""

    session_id: str
    prompt_part_length: int
    response_part_length: int
    associated_sequence_id: str
    kv_block_ids: list[int]
    last_update_ns: int

    @property
    def total_tokens_in_cache(self) -> int:
        """Tokens of prompt and response together."""
        return self.prompt_part_length + self.response_part_length

    @property
    def last_update_time(self) -> float:
        """Time of the turn's completion in seconds."""
        return self.last_update_ns / NS_PER_S


class Sessions:
    """The active sessions of one machine, the least recently updated first.

    ``on_forgotten`` is called with each dropped session. Cost: constant time per turn.
    """

    def __init__(self, max_sessions: int | None, ttl_ns: int | None) -> None:
        self._most, self._ttl_ns = max_sessions, ttl_ns
        self.active_sessions_kv_state: dict[str, SessionCacheInfo] = {}
        self.on_forgotten: Callable[[str], None] = lambda session_id: None

    def complete_turn(self, info: SessionCacheInfo) -> None:
        """Add a completed turn, then apply the bounds."""
        state = self.active_sessions_kv_state
        state.pop(info.session_id, None)
        state[info.session_id] = info
        while self._most is not None and len(state) > self._most:
            self.forget(next(iter(state)))
        self._expire(info.last_update_ns)

    def known(self, session_id: str | None, now_ns: int) -> SessionCacheInfo | None:
        """Return a session's state; None if no turn of it is known."""
        if session_id is None:
            return None
        self._expire(now_ns)
        return self.active_sessions_kv_state.get(session_id)

    def forget(self, session_id: str) -> None:
        """Drop a session."""
        if self.active_sessions_kv_state.pop(session_id, None) is not None:
            self.on_forgotten(session_id)

    def _expire(self, now_ns: int) -> None:
        state = self.active_sessions_kv_state
        while self._ttl_ns is not None and state:
            oldest = next(iter(state.values()))
            if now_ns - oldest.last_update_ns < self._ttl_ns:
                return
            self.forget(oldest.session_id)


class LookUps:
    """The sessions and the shared prefixes of one machine, for its admissions."""

    def __init__(
        self, machine: int, cache: CacheSettings, block: int, records: Records, trace: Trace, engine: Engine
    ) -> None:
        self.machine, self.cache, self.records = machine, cache, records
        self.trace, self.engine = trace, engine
        #: Tokens of a shared block.
        self.shared_block_tokens = self._block = block
        self.keys = Keys(key_arrays(trace, block))
        views, shared = cache.session_view, cache.prefix_view
        self.sessions = Sessions(views.max_sessions, views.ttl_ns)
        #: True if a prefix is shared only once it meets criteria.
        self._gated = shared != PrefixViewSettings()
        criteria = PrefixCriteria(-(-(shared.min_tokens or 1) // self._block), shared.min_seen)
        #: The shared prefixes.
        self.prefixes = GlobalPrefixStore(self._block, criteria, shared.max_tokens)
        #: Under simplified accounting: keeps a turn's tokens for its session, False without space.
        self.keep_session: Callable[[int, str, int], bool] | None = None

    def reusable_blocks(self, s: SequenceState, found: int, now_ns: int) -> int:
        """Return the number of blocks of a found run of ``found`` blocks that may be reused."""
        if self.keep_session is not None or not self._gated:
            return found
        info = self.sessions.known(s.session_id, now_ns)
        if info is not None and s.continues(info.total_tokens_in_cache):
            return found
        return self.prefixes.shareable_blocks(self.path(s.request, found))

    def path(self, request: int, blocks: int) -> list[PrefixHash]:
        """Return the hashes of a request's first prefixes, by their length in blocks."""
        return list(self.keys.path(request, 0, blocks))

    def first_admission(self, s: SequenceState, run_tokens: int, now_ns: int) -> None:
        """Decide and log the outcome of a first admission that reuses ``run_tokens`` tokens."""
        s.cached_prefix_length_used = run_tokens
        s.num_tokens_requiring_prefill = left = s.prompt_num_tokens - run_tokens
        info = self.sessions.known(s.session_id, now_ns)
        continues = info is not None and s.continues(info.total_tokens_in_cache)
        events = []
        if info is not None and not continues:
            events.append(CacheEvent(UNEXPECTED_PROMPT, 0, s.prompt_num_tokens))
        hit = CONVERSATIONAL_HIT if continues else CROSS_REQUEST_HIT
        s.outcome = hit if run_tokens else MISS_FULL
        events.append(CacheEvent(s.outcome, run_tokens, left))
        if run_tokens > 0 and left == 0:
            events.append(CacheEvent(FULL_HIT, run_tokens, left))
        for event in events:
            self.records.log_prefix_cache_event(s, self.machine, now_ns, event)
        if self._gated:
            self.prefixes.criteria.observe(self.path(s.request, s.prompt_num_tokens // self._block))

    def turn_completed(self, s: SequenceState, kept_output_tokens: int, now_ns: int) -> None:
        """Add a finished turn to the session's state, with ``kept_output_tokens`` tokens of its answer."""
        if s.session_id is None or not self.cache.enabled:
            return
        start, end = s.trace.id_offsets[s.request : s.request + 2]
        info = SessionCacheInfo(
            session_id=s.session_id,
            prompt_part_length=s.prompt_num_tokens,
            response_part_length=kept_output_tokens if self.cache.cache_output else 0,
            associated_sequence_id=str(s.request),
            kv_block_ids=s.trace.block_ids[start:end].tolist(),
            last_update_ns=now_ns,
        )
        self.sessions.complete_turn(info)
        total = info.total_tokens_in_cache
        if self.keep_session is not None and not self.keep_session(s.request, s.session_id, total):
            self.sessions.forget(s.session_id)

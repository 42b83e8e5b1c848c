"""The outcomes of look-ups, and what finished turns leave for the next ones (seed 000, 3.2 and 3.4).

At its first admission a request has one outcome (semantics 6). A turn of a known session whose prompt is not
longer than the session's cached total is logged as CONVERSATIONAL_MISS_UNEXPECTED_PROMPT and goes on like a
request without a session; a longer one with a resident run is a CONVERSATIONAL_HIT. Any other request with a
resident run is a CROSS_REQUEST_HIT, and without one a MISS_FULL. Where no token is left to prefill,
FULL_HIT_NO_PREFILL_NEEDED is logged besides. The length of a hit is always the resident run. When a turn is
complete its session is entered into ``active_sessions_kv_state``: the next turn's look-up finds it.
"""

from __future__ import annotations

from kvcache_sim.spec.records import Records
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.settings import CacheSettings

#: The five outcomes, by their code in a row.
CONVERSATIONAL_HIT, CROSS_REQUEST_HIT, MISS_FULL, FULL_HIT, UNEXPECTED_PROMPT = range(5)


class LookUps:
    """The sessions and the shared prefixes of one machine, as its admissions see them."""

    def __init__(self, machine: int, cache: CacheSettings, records: Records) -> None:
        self.machine = machine
        self.cache = cache
        self.records = records
        #: By session the tokens that its last completed turn left.
        self._sessions: dict[int, tuple[int, int]] = {}

    def reusable_blocks(self, s: SequenceState, found: int, now_ns: int) -> int:
        """Return how much of a found run may be reused."""
        return found

    def first_admission(self, s: SequenceState, run_tokens: int, now_ns: int) -> None:
        """Decide and log the outcome of a first admission that reuses ``run_tokens``."""
        s.cached_prefix_length_used = run_tokens
        s.num_tokens_requiring_prefill = left = s.prompt_num_tokens - run_tokens
        total = self._known(s.session, now_ns)
        unexpected = total is not None and s.prompt_num_tokens <= total
        events = []
        if unexpected:
            events.append((UNEXPECTED_PROMPT, 0, s.prompt_num_tokens))
        if run_tokens > 0:
            known = total is not None and not unexpected
            s.outcome = CONVERSATIONAL_HIT if known else CROSS_REQUEST_HIT
        else:
            s.outcome = MISS_FULL
        events.append((s.outcome, run_tokens, left))
        if run_tokens > 0 and left == 0:
            events.append((FULL_HIT, run_tokens, left))
        for event in events:
            self.records.log_prefix_cache_event(s, self.machine, now_ns, event)

    def turn_completed(self, s: SequenceState, kept_output_tokens: int, now_ns: int) -> None:
        """Enter a finished turn into the session's state, with as much of its answer as is kept here."""
        if s.session < 0 or not self.cache.enabled:
            return
        self._sessions.pop(s.session, None)
        total = s.prompt_num_tokens + (kept_output_tokens if self.cache.cache_output else 0)
        self._sessions[s.session] = total, now_ns
        limit = self.cache.max_sessions
        while limit is not None and len(self._sessions) > limit:
            del self._sessions[next(iter(self._sessions))]
        self._expire(now_ns)

    def _known(self, session: int, now_ns: int) -> int | None:
        if session < 0:
            return None
        self._expire(now_ns)
        return self._sessions[session][0] if session in self._sessions else None

    def _expire(self, now_ns: int) -> None:
        ttl = self.cache.session_ttl_ns
        while ttl is not None and self._sessions:
            oldest = next(iter(self._sessions))
            if now_ns - self._sessions[oldest][1] < ttl:
                return
            del self._sessions[oldest]

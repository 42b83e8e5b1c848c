"""What look-ups found on one machine, under seed 000's names, and what finished turns left for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.cache.prefix_view import PrefixHash
from kvcache_sim.cache.session_view import SessionCacheInfo
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import KeepsSessions
from kvcache_sim.cache.views import Views
from kvcache_sim.serving.outcome import PrefixCacheEvent, decide_outcome, found
from kvcache_sim.serving.sequence import SequenceState
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.cache.token_store import Keys


class Outcomes:
    """The session view and the gate of shared prefixes of one machine; labels of the trace are never read.

    ``gate_keys`` names prefixes where not every one is shared at once; ``tokens`` is, under simplified
    accounting, where the sessions' tokens are kept. ``cache`` counts in real blocks there too.
    """

    def __init__(
        self,
        trace: Trace,
        cache: CacheSettings,
        views: Views,
        gate_keys: Keys | None,
        tokens: KeepsSessions | None,
    ) -> None:
        self.trace = trace
        self.cache = cache
        self.keys = gate_keys
        self.sessions = views.sessions
        #: When each request was last admitted or done here.
        self.last_use_ns: dict[int, int] = {}
        self.prefixes = views.prefixes
        self.tokens = tokens

    def reusable_blocks(self, s: SequenceState, found: int, now_ns: int) -> int:
        """Return how much of a found run may be reused: all by a follow-up, else what is admitted of it."""
        if self.tokens is not None or self.keys is None or self._follows_up(s, now_ns):
            return found
        return self.prefixes.admitted_blocks(self._prefixes(s.request, found))

    def decide(self, s: SequenceState, run_tokens: int, now_ns: int) -> tuple[PrefixCacheEvent, ...]:
        """Return the events of a first admission that reuses ``run_tokens``; note the outcome on it."""
        self.last_use_ns[s.request] = now_ns
        info = self._session(s, now_ns)
        total = None if info is None else info.total_tokens_in_cache
        events = decide_outcome(s.prompt_num_tokens, total, run_tokens)
        s.outcome = found(events)
        if self.keys is not None:
            self.prefixes.observe(
                self._prefixes(s.request, s.prompt_num_tokens // self.cache.block_size_tokens)
            )
        return events

    def turn_completed(self, s: SequenceState, kept_output_tokens: int, now_ns: int) -> None:
        """Enter a finished turn into the session view, with as much of its answer as is kept here."""
        self.last_use_ns[s.request] = now_ns
        session_id = self.trace.session_id(s.session)
        if session_id is None or not self.cache.enabled:
            return
        start, end = self.trace.id_offsets[s.request : s.request + 2]
        info = SessionCacheInfo(
            session_id=session_id,
            prompt_part_length=s.prompt_num_tokens,
            response_part_length=kept_output_tokens if self.cache.cache_output else 0,
            associated_sequence_id=str(s.request),
            kv_block_ids=self.trace.block_ids[start:end],
            last_update_ns=now_ns,
        )
        self.sessions.complete_turn(info)
        if self.tokens is not None and not self.tokens.keep_session(
            s.request, session_id, info.total_tokens_in_cache
        ):
            self.sessions.forget(session_id)

    def _session(self, s: SequenceState, now_ns: int) -> SessionCacheInfo | None:
        session_id = self.trace.session_id(s.session)
        return None if session_id is None else self.sessions.known(session_id, now_ns)

    def _follows_up(self, s: SequenceState, now_ns: int) -> bool:
        info = self._session(s, now_ns)
        return info is not None and s.prompt_num_tokens > info.total_tokens_in_cache

    def _prefixes(self, request: int, blocks: int) -> list[PrefixHash]:
        assert self.keys is not None
        return [self.keys.key(request, block) for block in range(blocks)]

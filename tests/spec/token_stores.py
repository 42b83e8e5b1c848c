"""The core's and the specification's cache under simplified accounting, behind the same calls."""

from types import SimpleNamespace

import numpy as np
from kvcache_sim import _core
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from kvcache_sim.simulation.spec_invariants import CheckedTokens
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.lookups import SessionCacheInfo, Sessions
from kvcache_sim.spec.prefix_store import GlobalPrefixStore, PrefixCriteria
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, KeyArrays

BLOCK = 16


def arrays_of(texts: list[str]) -> KeyArrays:
    """Return the keys of texts, a character per block: equal prefixes have equal ids."""
    names: dict[str, int] = {}
    ids = [names.setdefault(text[: k + 1], len(names)) for text in texts for k in range(len(text))]
    lengths = np.array([len(text) for text in texts], np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    alone = np.full(len(texts), NO_NEXT_TURN, np.uint32)
    return offsets, np.array(ids, np.uint32), 1, lengths.astype(np.uint32), alone


class OfSpec:
    """The specification's store. ``prompts``: session (negative: none) and tokens by request, and history."""

    def __init__(self, arrays, prompts, capacity, sessions, prefixes) -> None:
        of, tokens, history = prompts
        self.clock = SimpleNamespace(now_ns=0)
        self.sessions = Sessions(sessions.max_sessions, sessions.ttl_ns)
        trace = SimpleNamespace(
            session=of,
            input_tokens=tokens,
            history_tokens=history if (history >= 0).any() else (),
            session_id=lambda session: None if session < 0 else str(session),
        )
        criteria = PrefixCriteria(-(-(prefixes.min_tokens or 1) // BLOCK), prefixes.min_seen)
        keys = Keys(arrays)
        self.lookups = SimpleNamespace(
            path=lambda request, blocks: list(keys.path(request, 0, blocks)),
            trace=trace,
            engine=self.clock,
            prefixes=GlobalPrefixStore(BLOCK, criteria, prefixes.max_tokens),
            sessions=self.sessions,
            shared_block_tokens=BLOCK,
        )
        self.store = CheckedTokens(self.lookups, capacity)

    def find(self, request: int, limit: int, now_ns: int) -> int:
        self.clock.now_ns = now_ns
        return self.store.peek(request, limit)[0]

    def observe(self, request: int, prompt_tokens: int) -> None:
        self.lookups.prefixes.criteria.observe(self.lookups.path(request, prompt_tokens // BLOCK))

    def complete_turn(self, request: int, session: int, tokens: int, now_ns: int) -> None:
        self.clock.now_ns = now_ns
        self.sessions.complete_turn(SessionCacheInfo(str(session), tokens, 0, str(request), [], now_ns))
        if not self.store.keep_session(request, str(session), tokens):
            self.sessions.forget(str(session))

    def session_tokens(self, session: int, now_ns: int) -> int | None:
        info = self.sessions.known(str(session), now_ns)
        return None if info is None else info.total_tokens_in_cache

    def release(self, lease: int, now_ns: int) -> None:
        self.clock.now_ns = now_ns
        self.store.release(lease, now_ns)

    def __getattr__(self, name: str):
        return getattr(self.store, name)


def of_core(
    arrays: KeyArrays,
    prompts: tuple[np.ndarray, np.ndarray, np.ndarray],
    capacity: int | None,
    sessions: SessionViewSettings,
    prefixes: PrefixViewSettings,
) -> _core.TokenStore:
    """Return the core's store."""
    return _core.TokenStore(_core.Keys(*arrays), prompts, BLOCK, capacity, sessions, prefixes)


STORES = {"core": of_core, "spec": OfSpec}

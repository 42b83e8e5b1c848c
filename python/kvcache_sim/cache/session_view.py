"""Sessions as the cache sees them: what the last completed turn of each left behind (seed 000, 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.units import NS_PER_S
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class SessionViewSettings:
    """Bounds on the known sessions: how many (None: any number), and for how long after a turn."""

    max_sessions: int | None = None
    ttl_ns: int | None = None

    def __post_init__(self) -> None:
        if self.max_sessions is not None and self.max_sessions < 1:
            raise UsageError(
                "out of range", where="session_view.max_sessions", got=str(self.max_sessions), expected="≥ 1"
            )
        if self.ttl_ns is not None and self.ttl_ns < 1:
            raise UsageError(
                "out of range", where="session_view.ttl", got=f"{self.ttl_ns} ns", expected="a time above 0"
            )


_ALL = SessionViewSettings()


@dataclass(frozen=True, slots=True)
class SessionCacheInfo:
    """The KV state that a session's last completed turn left; the fields are seed 000's."""

    session_id: str
    prompt_part_length: int
    response_part_length: int
    associated_sequence_id: str
    #: Ids of the whole blocks of prompt and response, as far as they are named.
    kv_block_ids: Sequence[int] | NDArray[np.uint32]
    last_update_ns: int

    @property
    def total_tokens_in_cache(self) -> int:
        """Tokens of prompt and response together; the last generated one is counted, though it has no KV."""
        return self.prompt_part_length + self.response_part_length

    @property
    def last_update_time(self) -> float:
        """Simulation time of the turn's completion in seconds."""
        return self.last_update_ns / NS_PER_S


class SessionView:
    """The active sessions of one machine, by session id, the least recently updated first.

    ``when_forgotten`` registers who is told the id of each session that is dropped (simplified accounting
    frees its tokens).
    Cost: constant time a turn.
    """

    def __init__(self, settings: SessionViewSettings = _ALL) -> None:
        self._settings = settings
        self._forgotten: list[Callable[[str], None]] = []
        self.active_sessions_kv_state: dict[str, SessionCacheInfo] = {}

    def when_forgotten(self, tell: Callable[[str], None]) -> None:
        """Tell the id of each session that is dropped from now on."""
        self._forgotten.append(tell)

    def complete_turn(self, info: SessionCacheInfo) -> None:
        """Enter a completed turn in place of the session's last one, then apply the bounds."""
        state = self.active_sessions_kv_state
        state.pop(info.session_id, None)
        state[info.session_id] = info
        limit = self._settings.max_sessions
        while limit is not None and len(state) > limit:
            self.forget(next(iter(state)))
        self.expire(info.last_update_ns)

    def known(self, session_id: str, now_ns: int) -> SessionCacheInfo | None:
        """Return the session's state, None where no turn of it is known any more."""
        self.expire(now_ns)
        return self.active_sessions_kv_state.get(session_id)

    def forget(self, session_id: str) -> None:
        """Drop a session."""
        if self.active_sessions_kv_state.pop(session_id, None) is not None:
            for tell in self._forgotten:
                tell(session_id)

    def expire(self, now_ns: int) -> None:
        """Drop the sessions whose last turn ended ``ttl_ns`` ago or longer."""
        ttl_ns, state = self._settings.ttl_ns, self.active_sessions_kv_state
        while ttl_ns is not None and state:
            oldest = next(iter(state.values()))
            if now_ns - oldest.last_update_ns < ttl_ns:
                return
            self.forget(oldest.session_id)

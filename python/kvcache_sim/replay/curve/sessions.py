"""The curve by session, and reuse within a session apart from reuse across sessions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.curve.hits import HitCurve, Reuses
from kvcache_sim.replay.curve.steps import Int64s
from kvcache_sim.workload.trace import NO_SESSION


@dataclass(frozen=True, slots=True)
class SessionHits:
    """Hits in blocks: row s of ``hit_blocks`` is session s, column c the c-th capacity, then unbounded."""

    capacities: Int64s
    requests: Int64s
    references: Int64s
    hit_blocks: Int64s
    #: Hits on blocks that the same session touched last, by capacity; other hits are across sessions.
    own_blocks: Int64s


def session_hits(curve: HitCurve, capacities: Int64s) -> SessionHits:
    """Split the hits at some capacities by session; raises ``UsageError`` for a trace without sessions."""
    session = curve.prompts.trace.session.astype(np.int64)
    if not len(session) or (session == NO_SESSION).all():
        raise UsageError("the trace names no sessions", where="--by-session")
    # requests without a session are one more, the last row
    count = int(session.max()) + 2
    session = np.where(session == NO_SESSION, count - 1, session)
    reuses = curve.reuses
    columns, same_session = [], []
    same = session[reuses.request] == session[reuses.before]
    for capacity in [*capacities.tolist(), curve.hit_blocks.last]:
        hits = _hits(reuses, capacity)
        columns.append(np.bincount(session[reuses.request], weights=hits, minlength=count).astype(np.int64))
        same_session.append(int(hits[same].sum()))
    blocks = curve.prompts.blocks.astype(np.int64) + curve.prompts.private_blocks
    return SessionHits(
        capacities=capacities,
        requests=np.bincount(session, minlength=count),
        references=np.bincount(session, weights=blocks, minlength=count).astype(np.int64),
        hit_blocks=np.stack(columns, axis=1),
        own_blocks=np.array(same_session, np.int64),
    )


def _hits(reuses: Reuses, capacity: int) -> NDArray[np.int64]:
    """Return the blocks of each reuse that are found at a capacity."""
    rising = np.clip(capacity - reuses.capacity + 1, 0, reuses.blocks)
    result: NDArray[np.int64] = np.where(
        reuses.step == 1, rising, reuses.blocks * (capacity >= reuses.capacity)
    )
    return result

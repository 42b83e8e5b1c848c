"""A generated workload as a trace in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.generate.requests import Requests, make_requests
from kvcache_sim.workload.generate.settings import Workload
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, NOT_TOLD, Trace


def assemble(settings: Workload, seed: int, source: str) -> Trace:
    """Return the whole workload in order of arrival, ties in the order made, its ids dense."""
    made = Requests.joined([requests for requests, _ in make_requests(settings, seed)])
    rows = made.take(np.argsort(made.arrival_ns, kind="stable"))
    row_of = np.empty(len(rows), np.int64)
    row_of[rows.number] = np.arange(len(rows))
    session, names = _by_appearance(rows.session)
    return Trace(
        arrival_ns=rows.arrival_ns,
        input_tokens=rows.input_tokens,
        output_tokens=rows.output_tokens,
        id_offsets=np.concatenate(([0], np.cumsum(rows.id_counts))),
        block_ids=_dense(rows.block_ids),
        block_size=settings.block_size,
        session=session.astype(np.int32),
        turn=rows.turn.astype(np.int32),
        think_ns=rows.think_ns,
        is_conversational_turn=rows.turn > 0,
        session_names=[f"s{name}" for name in names.tolist()],
        after=np.where(rows.after == NO_REQUEST, NO_REQUEST, row_of[rows.after]).astype(np.int32),
        history_tokens=np.where(rows.turn > 0, rows.history_tokens, NOT_TOLD),
        source=source,
    )


def _dense(ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return ids renumbered in order of first appearance."""
    distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(distinct), np.uint32)
    rank[np.argsort(first)] = np.arange(len(distinct), dtype=np.uint32)
    return rank[inverse]


def _by_appearance(session: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sessions renumbered in order of first appearance, and the old number of each."""
    distinct, first = np.unique(session, return_index=True)
    named = distinct != NO_SESSION
    names = distinct[named][np.argsort(first[named])]
    rank = np.full(int(session.max()) + 2, NO_SESSION)  # the last entry answers for NO_SESSION
    rank[names] = np.arange(len(names))
    return rank[session], names

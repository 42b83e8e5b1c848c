"""Rows of a trace chosen and ordered anew, its blocks and sessions numbered again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, Trace


def flat_positions(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenation of ``arange(start, start + count)`` over all pairs."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    positions = np.repeat(starts - (ends - counts), counts)
    positions += np.arange(total, dtype=np.int64)
    return positions


def first_appearance(ids: NDArray[np.uint32], distinct: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return ``ids`` numbered densely by first appearance, and the old number of each new one.

    Cost: linear in the references plus a sort of the distinct ids.
    """
    first = np.full(distinct, len(ids), np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # the last write of an id is its first place
    used = np.flatnonzero(first < len(ids))
    old = used[np.argsort(first[used], kind="stable")]
    new = np.zeros(distinct, np.uint32)
    new[old] = np.arange(len(old), dtype=np.uint32)
    return new[ids], old


def select_rows(trace: Trace, rows: NDArray[np.int64]) -> Trace:
    """Return the given rows in the given order; block ids and sessions stay dense by first appearance.

    A request that waited for a row left out waits for the previous turn of its session.
    """
    counts = np.diff(trace.id_offsets)[rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    references = trace.block_ids[flat_positions(trace.id_offsets[:-1][rows], counts)]
    block_ids, old = first_appearance(references, trace.distinct_ids)
    session = trace.session[rows]
    named = session != NO_SESSION
    dense, old_session = first_appearance(session[named].astype(np.uint32), len(trace.session_names))
    session = session.copy()
    session[named] = dense.astype(np.int32)
    return replace(
        trace,
        arrival_ns=trace.arrival_ns[rows],
        input_tokens=trace.input_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        id_offsets=offsets,
        block_ids=block_ids,
        session=session,
        turn=trace.turn[rows],
        think_ns=trace.think_ns[rows],
        is_conversational_turn=trace.is_conversational_turn[rows],
        id_names=names_of(trace, old),
        session_names=[trace.session_names[k] for k in old_session.tolist()],
        extra=[trace.extra[k] for k in rows.tolist()] if trace.extra else [],
        after=_moved(trace.after, rows) if len(trace.after) else trace.after,
        also_after=_moved_pairs(trace.also_after, rows, len(trace)),
        history_tokens=trace.history_tokens[rows] if len(trace.history_tokens) else trace.history_tokens,
        tenant=trace.tenant[rows] if len(trace.tenant) else trace.tenant,
        priority=trace.priority[rows] if len(trace.priority) else trace.priority,
        named_tokens=trace.named_tokens[rows] if len(trace.named_tokens) else trace.named_tokens,
        abort_after_ns=trace.abort_after_ns[rows] if len(trace.abort_after_ns) else trace.abort_after_ns,
    )


def _moved(after: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the column ``after`` of the chosen rows, naming their new places."""
    place = np.full(len(after) + 1, NO_REQUEST, np.int32)  # the last entry answers for NO_REQUEST
    place[rows] = np.arange(len(rows), dtype=np.int32)
    return place[after[rows]]


def _moved_pairs(pairs: NDArray[np.int32], rows: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Return the pairs of the chosen rows by their new places; one with a row left out is left out."""
    if not len(pairs):
        return pairs
    place = np.full(count, NO_REQUEST, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    moved: NDArray[np.int32] = place[pairs]
    kept: NDArray[np.int32] = moved[(moved != NO_REQUEST).all(axis=1)]
    return kept


def names_of(trace: Trace, dense: NDArray[np.int64]) -> NDArray[np.int64] | NDArray[np.uint64] | list[str]:
    """Return the original ids of dense ones; empty when they are 0, 1, 2, …"""
    if isinstance(trace.id_names, list):
        return [trace.id_names[k] for k in dense.tolist()]
    names = trace.id_names[dense] if len(trace.id_names) else dense
    same = bool(np.array_equal(names, np.arange(len(dense), dtype=names.dtype)))
    return np.empty(0, np.int64) if same else names

"""Selection and reordering of a trace's rows, with blocks and sessions renumbered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.trace import COLUMNS, NO_REQUEST, NO_SESSION, WHERE_EMPTY, Trace

#: Further optional columns of one entry a request.
_OTHERS = ("dropped_tokens", "tenant", "model", "retention", "live_ns", "parent", "play", "shown_tokens")


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
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # the last write of an id is its first position
    used = np.flatnonzero(first < len(ids))
    old = used[np.argsort(first[used], kind="stable")]
    new = np.zeros(distinct, np.uint32)
    new[old] = np.arange(len(old), dtype=np.uint32)
    return new[ids], old


def by_first_appearance(ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return ids of any size numbered densely by first appearance. Cost: a sort of the references."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.uint32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.uint32)
    return rank[inverse]


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
    given = [name for name in (*WHERE_EMPTY, *_OTHERS) if len(getattr(trace, name))]
    return replace(
        trace,
        **{name: getattr(trace, name)[rows] for name in (*COLUMNS, *given)},
        id_offsets=offsets,
        block_ids=block_ids,
        session=session,
        id_names=names_of(trace, old),
        session_names=[trace.session_names[k] for k in old_session.tolist()],
        extra=[trace.extra[k] for k in rows.tolist()] if trace.extra else [],
        after=_moved(trace.after, rows) if len(trace.after) else trace.after,
        also_after=_moved_pairs(trace.also_after, rows, len(trace)),
    )


def _moved(after: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the column ``after`` of the selected rows, with their new indices."""
    position = np.full(len(after) + 1, NO_REQUEST, np.int32)  # the last entry stands for NO_REQUEST
    position[rows] = np.arange(len(rows), dtype=np.int32)
    return position[after[rows]]


def _moved_pairs(pairs: NDArray[np.int32], rows: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Return the pairs of the selected rows by their new indices; pairs with an omitted row are dropped."""
    if not len(pairs):
        return pairs
    position = np.full(count, NO_REQUEST, np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    moved: NDArray[np.int32] = position[pairs]
    kept: NDArray[np.int32] = moved[(moved != NO_REQUEST).all(axis=1)]
    return kept


def names_of(
    trace: Trace, dense: NDArray[np.int64]
) -> NDArray[np.int64] | NDArray[np.uint64] | list[str] | list[int]:
    """Return the original ids of dense ones; empty if they are 0, 1, 2, …"""
    if isinstance(trace.id_names, list):
        return [trace.id_names[k] for k in dense.tolist()]
    names = trace.id_names[dense] if len(trace.id_names) else dense
    same = bool(np.array_equal(names, np.arange(len(dense), dtype=names.dtype)))
    return np.empty(0, np.int64) if same else names


#: Block ids of rows that are written together.
PART_REFERENCES = 1 << 20


def parts(trace: Trace, references: int) -> Iterator[Trace]:
    """Yield consecutive rows of a trace, about ``references`` ids at a time, numbered as in the trace."""
    start = 0
    while start < len(trace):
        most = trace.id_offsets[start] + references
        stop = max(start + 1, int(np.searchsorted(trace.id_offsets, most, "right")) - 1)
        rows, first = slice(start, min(stop, start + references)), int(trace.id_offsets[start])
        start = rows.stop
        given = [name for name in (*WHERE_EMPTY, "after", "extra") if len(getattr(trace, name))]
        yield replace(
            trace,
            **{name: getattr(trace, name)[rows] for name in (*COLUMNS, "session", *given)},
            id_offsets=trace.id_offsets[rows.start : start + 1] - first,
            block_ids=trace.block_ids[first : int(trace.id_offsets[start])],
        )

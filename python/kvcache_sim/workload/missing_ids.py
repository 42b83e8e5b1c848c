"""Block ids for rows without ids, and the history of rows that have only a turn's new input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError
from kvcache_sim.workload.rows import first_appearance, flat_positions
from kvcache_sim.workload.sessions import previous_turns
from kvcache_sim.workload.trace import NO_REQUEST, NOT_GIVEN, Trace


def with_history(trace: Trace) -> Trace:
    """Return the trace with whole prompts: inputs 0 … t and answers 0 … t − 1 of the session at turn t.

    Rows without a session are unchanged. The trace must have no block ids yet, as those would cover only the
    new input; ``missing_ids.fill_missing_ids`` adds them afterwards. Raises TraceError naming the first row
    with ids. Source: seed 000, 4.1 (``new_input_only``).
    """
    counts = np.diff(trace.id_offsets)
    if counts.any():
        row = int(np.flatnonzero(counts)[0])
        raise TraceError(
            "a row with the new input only cannot have hash_ids",
            where=f"{trace.source}: row {row}",
            hint="hash_ids name whole prompts: leave them out, or write whole prompts",
        )
    return _with_history_tokens(trace)


def joined_turns(trace: Trace) -> Trace:
    """Return the trace with whole prompts as ``with_history``, where rows may have ids of their new input.

    Prompts and answers so far are joined and cut anew: later turns keep the whole blocks of the turn before
    and get new ids behind them, as answers are private to their session.
    """
    later = previous_turns(trace) != NO_REQUEST
    return fill_missing_ids(_with_history_tokens(trace), later & (np.diff(trace.id_offsets) > 0))


def _with_history_tokens(trace: Trace) -> Trace:
    prompt = trace.input_tokens.copy()
    history = np.full(len(trace), NOT_GIVEN, np.int64)
    previous = previous_turns(trace)
    # In order of turns, whatever the order of the rows.
    for row in np.lexsort((trace.turn, trace.session)).tolist():
        before = previous[row]
        if before != NO_REQUEST:
            history[row] = prompt[before] + trace.output_tokens[before]
            prompt[row] += history[row]
    return replace(trace, input_tokens=prompt, history_tokens=history)


def fill_missing_ids(trace: Trace, rows: NDArray[np.bool_] | None = None) -> Trace:
    """Return the trace with floor(input / block) ids in each row that had none, or in ``rows`` instead.

    A row of a session whose prompt is longer than the previous turn (prompt and answer) repeats that turn's
    whole blocks and continues with new ones. Every other row gets ids of its own (seed 000's views on blocks:
    requests without ids get them from session and turn, or unique ones).
    """
    counts = np.diff(trace.id_offsets)
    empty = counts == 0 if rows is None else rows
    blocks = np.where(empty, trace.input_tokens // trace.block_size, counts)
    offsets = np.zeros(len(trace) + 1, np.int64)
    np.cumsum(blocks, out=offsets[1:])
    ids = np.empty(int(offsets[-1]), np.int64)
    known = flat_positions(offsets[:-1][~empty], counts[~empty])
    ids[known] = trace.block_ids[flat_positions(trace.id_offsets[:-1][~empty], counts[~empty])]
    fresh = flat_positions(offsets[:-1][empty], blocks[empty])
    named = trace.distinct_ids
    ids[fresh] = named + np.arange(len(fresh))
    _repeat_history(trace, empty, offsets, ids)
    dense, old = first_appearance(ids.astype(np.uint32), named + len(fresh))
    return replace(trace, id_offsets=offsets, block_ids=dense, id_names=_names(trace, old, named))


def _repeat_history(
    trace: Trace, empty: NDArray[np.bool_], offsets: NDArray[np.int64], ids: NDArray[np.int64]
) -> None:
    """Copy the whole blocks of the turn before into each longer turn that gets ids, in place."""
    previous = previous_turns(trace)
    totals = trace.input_tokens + trace.output_tokens
    follows = empty & (previous != NO_REQUEST)
    follows &= trace.input_tokens > totals[previous]
    order = np.lexsort((trace.turn, trace.session))
    for row in order[follows[order]].tolist():
        before = previous[row]
        whole = min(
            int(trace.input_tokens[before]) // trace.block_size, offsets[before + 1] - offsets[before]
        )
        ids[offsets[row] : offsets[row] + whole] = ids[offsets[before] : offsets[before] + whole]


def _listed_names(names: list[str] | list[int], old: NDArray[np.int64], named: int) -> list[Any]:
    """Return names of the kind of ``names``: texts, or integers of any size and sign."""
    integers = [name for name in names if isinstance(name, int)]
    if integers:
        top = max(integers) + 1
        return [names[k] if k < named else top + k - named for k in old.tolist()]
    prefix = "private:"
    while any(str(name).startswith(prefix) for name in names):
        prefix = "_" + prefix
    return [names[k] if k < named else f"{prefix}{k - named}" for k in old.tolist()]


def _names(
    trace: Trace, old: NDArray[np.int64], named: int
) -> NDArray[np.int64] | NDArray[np.uint64] | list[str] | list[int]:
    """Return names for the old ids and, beyond ``named``, names that no old id has."""
    if isinstance(trace.id_names, list):
        return _listed_names(trace.id_names, old, named)
    if not len(trace.id_names):
        same = bool(np.array_equal(old, np.arange(len(old))))
        return np.empty(0, np.int64) if same else old
    # A repeated history replaces ids that no row has then: they have names here all the same.
    new = int(old.max(initial=named - 1)) + 1 - named
    top = int(trace.id_names.max()) + 1
    if top + new >= 1 << 64:
        top = 0
        while bool(np.any((trace.id_names >= top) & (trace.id_names < top + new))):
            top += new
    extended = np.concatenate(
        [trace.id_names.astype(np.uint64), np.arange(new, dtype=np.uint64) + np.uint64(top)]
    )
    return extended[old]

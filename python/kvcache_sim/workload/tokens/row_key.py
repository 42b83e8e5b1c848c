"""A row's own tokens: the key for drawing them, and the number that its ids' blocks leave over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.rng import HashIdRandomGenerator, derive_seed
from kvcache_sim.workload.trace import NO_SESSION, Trace

#: (session, turn), or a row's number in its trace if it has no session.
RowKey = tuple[str | int, int] | int


def row_key_text(row_key: RowKey) -> str:
    """Return the text that is hashed for a row; different rows have different texts."""
    if isinstance(row_key, tuple) and len(row_key) == 2:
        session, turn = row_key
        return f"session:{session}:{turn}"
    if isinstance(row_key, int) and not isinstance(row_key, bool):
        return f"row:{row_key}"
    raise UsageError("not a row key", got=repr(row_key), expected="(session, turn) or a row number")


def row_base_seed(base_seed: int) -> int:
    """Return the base of rows' seeds, separate from the ids' base, so that no id collides with a row."""
    return derive_seed(base_seed, "rows")


def row_generator(ids: HashIdRandomGenerator, trace_id: str | None) -> HashIdRandomGenerator:
    """Return the generator that is re-seeded for each row, separate from the ids' generator."""
    return HashIdRandomGenerator(row_base_seed(ids.base_seed), trace_id)


def trace_row_key(trace: Trace, row: int) -> RowKey:
    """Return the key of a trace's row: its session and turn, or its number without one."""
    session = int(trace.session[row])
    return row if session == NO_SESSION else (trace.session_names[session], int(trace.turn[row]))


def block_sizes(length: int, ids: int, block_size: int) -> list[int]:
    """Return the tokens of each block of one row.

    Raises UsageError for a length below 1 and for more ids than fit the length.
    """
    if length < 1:
        raise UsageError("a prompt needs a token", where="length", got=str(length), expected="at least 1")
    most = -(-length // block_size)
    if ids > most:
        raise UsageError(
            f"too many hash ids for {length} tokens in blocks of {block_size}",
            where="hash_ids", got=str(ids), expected=f"at most {most}",
        )  # fmt: skip
    return [min(block_size, length - block_size * index) for index in range(ids)]


def reference_sizes(trace: Trace) -> NDArray[np.int64]:
    """Return the tokens of every block reference of a trace, in the order of ``trace.block_ids``.

    Raises TraceError for the first row of length below 1, or with too many ids. Cost: a few passes.
    """
    lengths, ids = trace.input_tokens, np.diff(trace.id_offsets)
    block_size = trace.block_size
    _refuse_first(trace, lengths < 1, "a prompt needs a token", lengths, "at least 1")
    most = -(-lengths // block_size)
    _refuse_first(
        trace, ids > most, "too many hash ids for input_length", ids, "at most ceil(length / block size)"
    )
    sizes = np.full(len(trace.block_ids), block_size, np.int64)
    has_ids = ids > 0
    last = trace.id_offsets[1:][has_ids] - 1
    sizes[last] = np.minimum(block_size, lengths[has_ids] - block_size * (ids[has_ids] - 1))
    return sizes


def sizes_by_id(trace: Trace) -> NDArray[np.int64]:
    """Return the tokens of each distinct id's block, by dense id.

    Raises TraceError as `reference_sizes`, and for the first row that uses an id at a second size.
    """
    sizes = reference_sizes(trace)
    by_id = np.zeros(trace.distinct_ids, np.int64)
    by_id[trace.block_ids[::-1]] = sizes[::-1]  # the first reference is written last
    conflicts = np.flatnonzero(by_id[trace.block_ids] != sizes)
    if len(conflicts):
        at = int(conflicts[0])
        row = int(np.searchsorted(trace.id_offsets, at, side="right")) - 1
        dense = int(trace.block_ids[at])
        raise TraceError(
            "a hash id asked at two sizes", where=_location(trace, row),
            got=f"id {id_name(trace, dense)} with {sizes[at]} tokens",
            expected=f"{by_id[dense]} tokens, as in an earlier row",
        )  # fmt: skip
    return by_id


def id_name(trace: Trace, dense: int) -> int | str:
    """Return the original id of a dense one."""
    if len(trace.id_names) == 0:
        return dense
    name = trace.id_names[dense]
    return name if isinstance(name, str) else int(name)


def _refuse_first(
    trace: Trace, wrong: NDArray[np.bool_], what: str, values: NDArray[np.int64], expected: str
) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        row = int(rows[0])
        raise TraceError(what, where=_location(trace, row), got=str(values[row]), expected=expected)


def _location(trace: Trace, row: int) -> str:
    return f"{trace.source or 'trace'}: row {row}"

"""The name under which a row's own tokens are drawn: what lies beyond its ids, or all of it without ids."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.rng import HashIdRandomGenerator, derive_seed
from kvcache_sim.workload.trace import NO_SESSION, Trace

#: (session, turn), or a row's number in its trace where it has no session.
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
    """Return the base of rows' seeds, apart from the ids' base, so that no id can meet a row."""
    return derive_seed(base_seed, "rows")


def row_generator(ids: HashIdRandomGenerator, trace_id: str | None) -> HashIdRandomGenerator:
    """Return the generator to re-seed for each row, beside the one of the ids."""
    return HashIdRandomGenerator(row_base_seed(ids.base_seed), trace_id)


def trace_row_key(trace: Trace, row: int) -> RowKey:
    """Return the key of a trace's row: its session and turn, or its number without one."""
    session = int(trace.session[row])
    return row if session == NO_SESSION else (trace.session_names[session], int(trace.turn[row]))

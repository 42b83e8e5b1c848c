"""Small traces for the tests of tokens: columns from plain rows."""

from dataclasses import dataclass, field

import numpy as np
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace


@dataclass(frozen=True)
class Row:
    length: int
    ids: list[int] | list[str] = field(default_factory=list)
    session: str = ""
    turn: int = 0


def trace_of(rows: list[Row], block_size: int) -> Trace:
    dense: dict[int | str, int] = {}
    sessions: dict[str, int] = {}
    for row in rows:
        for name in row.ids:
            dense.setdefault(name, len(dense))
        if row.session:
            sessions.setdefault(row.session, len(sessions))
    names = list(dense)
    fits = all(isinstance(name, int) and -(2**63) <= name < 2**63 for name in names)
    count = len(rows)
    return Trace(
        arrival_ns=np.zeros(count, np.int64),
        input_tokens=np.array([row.length for row in rows], np.int64),
        output_tokens=np.ones(count, np.int64),
        id_offsets=np.cumsum([0, *(len(row.ids) for row in rows)], dtype=np.int64),
        block_ids=np.array([dense[name] for row in rows for name in row.ids], np.uint32),
        block_size=block_size,
        session=np.array([sessions.get(row.session, NO_SESSION) for row in rows], np.int32),
        turn=np.array([row.turn for row in rows], np.int32),
        think_ns=np.full(count, OPEN_LOOP, np.int64),
        is_conversational_turn=np.zeros(count, np.bool_),
        id_names=np.array(names, np.int64) if fits else [str(name) for name in names],
        session_names=list(sessions),
    )

"""Small traces for the tests of tokens: columns from plain rows."""

from dataclasses import dataclass, field, replace

import numpy as np
from kvcache_sim.workload.trace import NO_SESSION, Trace

from support import small_traces


@dataclass(frozen=True)
class Row:
    length: int
    ids: list[int] | list[str] = field(default_factory=list)
    session: str = ""
    turn: int = 0


def trace_of(rows: list[Row], block_size: int) -> Trace:
    names = list(dict.fromkeys(name for row in rows for name in row.ids))
    sessions = list(dict.fromkeys(row.session for row in rows if row.session))
    fits = all(isinstance(name, int) and -(2**63) <= name < 2**63 for name in names)
    plain = small_traces.trace_of([row.ids for row in rows], block_size, [row.length for row in rows])
    plain.session[:] = [sessions.index(row.session) if row.session else NO_SESSION for row in rows]
    plain.turn[:] = [row.turn for row in rows]
    id_names = np.array(names, np.int64) if fits else [str(name) for name in names]
    return replace(plain, id_names=id_names, session_names=sessions)

"""Traces put beside each other: their ids and sessions kept apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, NOT_TOLD, Trace


def stacked(traces: list[Trace]) -> Trace:
    """Return the rows of all traces one after another, no id or session shared between two of them.

    Ids are numbered anew; sessions are named ``<number of the trace>:<name>``. Raises ``UsageError`` where
    block sizes differ.
    """
    sizes = sorted({t.block_size for t in traces})
    if len(sizes) > 1:
        raise UsageError(
            "traces of different block sizes",
            got=" and ".join(map(str, sizes)),
            hint="kvsim trace rechunk makes them equal",
        )
    rows = np.cumsum([0, *map(len, traces)])
    ids = np.cumsum([0, *(t.distinct_ids for t in traces)])
    sessions = np.cumsum([0, *(len(t.session_names) for t in traces)])
    references = np.cumsum([0, *(len(t.block_ids) for t in traces)])

    def joined(name: str) -> NDArray[np.int64]:
        return np.concatenate([getattr(t, name) for t in traces])

    def moved(column: NDArray[np.int32], by: int, none: int) -> NDArray[np.int32]:
        return np.where(column == none, none, column + by).astype(np.int32)

    def rare(name: str, none: int) -> list[NDArray[np.int64]]:
        given = [getattr(t, name) for t in traces]
        return [c if len(c) else np.full(len(t), none, np.int64) for c, t in zip(given, traces, strict=True)]

    afters = rare("after", NO_REQUEST) if any(len(t.after) for t in traces) else []
    history = rare("history_tokens", NOT_TOLD) if any(len(t.history_tokens) for t in traces) else []
    priority = rare("priority", 0) if any(len(t.priority) for t in traces) else []
    named = rare("named_tokens", 0) if any(len(t.named_tokens) for t in traces) else []
    aborts = rare("abort_after_ns", NOT_TOLD) if any(len(t.abort_after_ns) for t in traces) else []
    return replace(
        traces[0],
        arrival_ns=joined("arrival_ns"),
        input_tokens=joined("input_tokens"),
        output_tokens=joined("output_tokens"),
        id_offsets=np.concatenate(
            [[0], *(t.id_offsets[1:] + r for t, r in zip(traces, references, strict=False))]
        ),
        block_ids=np.concatenate([t.block_ids + np.uint32(k) for t, k in zip(traces, ids, strict=False)]),
        session=np.concatenate(
            [moved(t.session, k, NO_SESSION) for t, k in zip(traces, sessions, strict=False)]
        ),
        turn=np.concatenate([t.turn for t in traces]),
        think_ns=joined("think_ns"),
        is_conversational_turn=np.concatenate([t.is_conversational_turn for t in traces]),
        id_names=np.empty(0, np.int64),
        session_names=[f"{k}:{name}" for k, t in enumerate(traces) for name in t.session_names],
        extra=[e for t in traces for e in (t.extra or [""] * len(t))] if any(t.extra for t in traces) else [],
        after=np.concatenate(
            [moved(a.astype(np.int32), int(r), NO_REQUEST) for a, r in zip(afters, rows, strict=False)]
            or [np.empty(0, np.int32)]
        ),
        also_after=np.concatenate(
            [(t.also_after + int(r)).astype(np.int32) for t, r in zip(traces, rows, strict=False)]
        ),
        history_tokens=np.concatenate(history or [np.empty(0, np.int64)]),
        priority=np.concatenate(priority or [np.empty(0, np.int64)]),
        named_tokens=np.concatenate(named or [np.empty(0, np.int64)]),
        abort_after_ns=np.concatenate(aborts or [np.empty(0, np.int64)]),
        source=" + ".join(dict.fromkeys(t.source for t in traces)),
        sha256="",
        warnings=(),
    )

"""Why prompt tokens were missed in a timed run: told after the run from its requests table and its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import MISS_CAUSES, STATUSES, Column
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import Trace

#: The columns ``miss_{cause}_tokens`` that ``--causes`` adds to requests.parquet.
MISS_COLUMNS: dict[str, Column] = {
    f"miss_{cause}_tokens": Column("int64", f"prompt tokens missed: {meaning}")
    for cause, meaning in MISS_CAUSES.items()
} | {"evicted_idle_ns": Column("int64", "longest time since the last use of an evicted block, else -1")}


@dataclass(slots=True)
class _Seen:
    """One id on one machine: who computes it, when it was ready, when a request last let go of it."""

    ready_ns: int
    used_ns: int


@dataclass(slots=True)
class _History:
    """What the requests admitted so far have shown, by place in the tree of all paths."""

    #: (place before, id) → place; the root is -1.
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    #: By (machine, place).
    seen: dict[tuple[int, int], _Seen] = field(default_factory=dict)
    #: Places that any machine has shown, and those that some request went on from.
    shown: set[int] = field(default_factory=set)
    followed: set[int] = field(default_factory=set)

    def path(self, ids: list[int], before: int = -1) -> list[int]:
        """Return the places of ids that follow each other."""
        places = []
        for one in ids:
            before = self.places.setdefault((before, one), len(self.places))
            places.append(before)
        return places

    def show(self, machine: int, path: list[int], ready_ns: int, used_ns: int) -> None:
        """Enter a path that a request computes or reuses on a machine."""
        for one in path:
            known = self.seen.get((machine, one))
            if known is None:
                self.seen[machine, one] = _Seen(ready_ns, used_ns)
                self.shown.add(one)
            else:
                known.ready_ns = min(known.ready_ns, ready_ns)
                known.used_ns = max(known.used_ns, used_ns)
        self.followed.update(path[:-1])

    def cause(self, machine: int, one: int, before: int | None, now_ns: int) -> str:
        """Return why a place was missed on a machine."""
        known = self.seen.get((machine, one))
        if known is not None:
            return "evicted" if known.ready_ns <= now_ns else "not_ready"
        if one in self.shown:
            return "elsewhere"
        return "diverged" if before is not None and before in self.followed else "never_seen"


def miss_causes(
    requests: Mapping[str, Any], trace: Trace, block_size_tokens: int, kept: bool = True
) -> dict[str, NDArray[np.int64]]:
    """Return the columns of ``MISS_COLUMNS``; per finished request the causes sum to prompt − cached tokens.

    A token belongs to its id (a block of the trace) after all before it. ``kept`` is False where a setting
    keeps blocks out of the cache or out of reach: what was ready here and is missed was then *not admitted*.
    Rejected requests have zeros. Cost: a dictionary look-up an id.
    """
    columns = {name: np.zeros(len(trace), np.int64) for name in MISS_COLUMNS}
    columns["evicted_idle_ns"][:] = -1
    row = {name: np.asarray(requests[name]).tolist() for name in _READ}
    finished = STATUSES.index("finished")
    history, following = _History(), continuations(trace).tolist()
    offsets, size = trace.id_offsets.tolist(), trace.block_size
    admitted = [
        row["first_token_ns"][i] - sum(row[f"{part}_ns"][i] for part in _AFTER) for i in range(len(trace))
    ]

    def ids(i: int) -> list[int]:
        return [int(one) for one in trace.block_ids[offsets[i] : offsets[i + 1]]]

    for i in sorted(range(len(trace)), key=lambda i: (admitted[i], i)):
        if row["status"][i] != finished:
            continue
        path, machine, prompt = history.path(ids(i)), row["machine"][i], row["input_tokens"][i]
        cached, may_hit = row["cached_prefix_length_used"][i], (prompt - 1) // block_size_tokens
        at, end = cached, max(may_hit * block_size_tokens, cached)
        columns["miss_shorter_tokens"][i] = prompt - end
        while at < end:
            k = at // size
            upto = min((k + 1) * size, end) if k < len(path) else end
            cause = "never_seen"
            if k < len(path):
                cause = history.cause(machine, path[k], path[k - 1] if k else None, admitted[i])
            if cause == "evicted":
                cause = "evicted" if kept else "not_admitted"
                idle = max(admitted[i] - history.seen[machine, path[k]].used_ns, 0)
                columns["evicted_idle_ns"][i] = max(columns["evicted_idle_ns"][i], idle)
            columns[f"miss_{cause}_tokens"][i] += upto - at
            at = upto
        last = row["finish_ns"][i]
        whole = -(-(prompt // block_size_tokens * block_size_tokens) // size)
        history.show(machine, path[:whole], row["first_token_ns"][i], last)
        if following[i] >= 0 and whole * size <= prompt:
            # an answer has the next turn's ids only where no block is named by an id of its own
            own, whole = prompt // size, (prompt + max(row["output_tokens"][i], 1) - 1) // size
            answer = history.path(ids(following[i])[own:whole], path[own - 1] if own else -1)
            history.show(machine, answer, last, last)
    return columns


_AFTER = ("fetch", "prefill", "first_decode", "handover")
_READ = (
    "status", "machine", "input_tokens", "output_tokens", "cached_prefix_length_used", "first_token_ns",
    "finish_ns", *(f"{part}_ns" for part in _AFTER),
)  # fmt: skip


def summarize_misses(columns: Mapping[str, NDArray[np.int64]], policies: list[str]) -> dict[str, Any]:
    """Return ``misses`` of the summary: tokens by cause, who evicted, and how long blocks had been idle."""
    tokens = {cause: int(columns[f"miss_{cause}_tokens"].sum()) for cause in MISS_CAUSES}
    idle = columns["evicted_idle_ns"]
    idle = idle[idle >= 0]
    return {
        "tokens": sum(tokens.values()),
        **tokens,
        "evicted_by": policies,
        "evicted_idle_ms": {
            "requests": len(idle),
            "avg": float(idle.mean()) / 1e6 if len(idle) else None,
            "max": float(idle.max()) / 1e6 if len(idle) else None,
        },
    }

"""Meaning of a session's later rows: whole prompts, or their new turn alone.

AIPerf's and Dynamo's clients send a session's prompts and answers so far before each later row. Sources:
ai-dynamo/dynamo #14184 and #14254, aiperf #1398.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.workload.missing_ids import joined_turns
from kvcache_sim.workload.readers.findings import Finding
from kvcache_sim.workload.readers.format import rows_with_ids
from kvcache_sim.workload.sessions import previous_turns
from kvcache_sim.workload.trace import NO_REQUEST, Trace

if TYPE_CHECKING:
    from kvcache_sim.workload.readers.format import TraceFormat
    from kvcache_sim.workload.readers.settings import Turns


def stated_meaning(chosen: TraceFormat, head: bytes, turns: Turns | None) -> Turns | None:
    """Return the meaning that the settings or the format determine; None: the ids of later rows decide.

    Raises UsageError for ``delta`` where rows are whole prompts by their format.
    """
    if chosen.numbers_turns is None:
        if turns == "delta":
            raise UsageError("has no effect", where="trace.turns", got=f"a trace of format {chosen.name}")
        return "whole"
    return turns or ("whole" if chosen.numbers_turns(head) else None)


def head_has_whole_prompts(head: bytes) -> bool:
    """Return True if a file's first rows have later ones, most of which share ids with the turn before."""
    last: dict[str, set[str]] = {}
    balance = 0
    for row in rows_with_ids(head):
        name, ids = str(row.get("session_id")), set(map(str, row["hash_ids"]))
        if name in last and row.get("delay") is not None:
            balance += -1 if ids.isdisjoint(last[name]) else 1
        last[name] = ids
    return balance > 0


class _Later(NamedTuple):
    """Later rows with ``delay`` and ids: all of them, and those that share no id with the turn before."""

    rows: int
    apart: int


def _later(trace: Trace) -> _Later:
    previous, counts = previous_turns(trace), np.diff(trace.id_offsets)
    rows = np.flatnonzero((previous != NO_REQUEST) & (trace.think_ns >= 0) & (counts > 0))
    rows = rows[counts[previous[rows]] > 0]
    starts, ids = trace.id_offsets, trace.block_ids
    unlike = rows[ids[starts[rows]] != ids[starts[previous[rows]]]]
    return _Later(len(rows), sum(_apart(trace, row, int(previous[row])) for row in unlike.tolist()))


def _apart(trace: Trace, row: int, before: int) -> bool:
    def ids(request: int) -> NDArray[np.uint32]:
        return trace.block_ids[trace.id_offsets[request] : trace.id_offsets[request + 1]]

    return set(ids(row).tolist()).isdisjoint(ids(before).tolist())


def with_whole_prompts(
    trace: Trace, turns: Turns | None, findings: list[Finding]
) -> tuple[Trace, list[Finding]]:
    """Return the trace with whole prompts, and the findings with a note on the meaning of its later rows.

    ``turns`` None: they are new turns if most of them share no id with the turn before. Ids of new turns name
    texts and may follow any id: a broken chain of theirs is no finding. Raises UsageError if ``turns`` is
    ``delta`` and no row is a later one.
    """
    if turns == "whole":
        return trace, findings
    later = _later(trace)
    if turns is None and not later.rows:
        return trace, findings
    if turns is None and 2 * later.apart <= later.rows:
        said = (
            f"{later.rows - later.apart:,} of {later.rows:,} later rows of sessions repeat ids of the turn "
            "before: whole prompts (AIPerf prepends the turns before: --turns delta)"
        )
        return trace, [Finding("whole-turns", later.rows, 0, said), *findings]
    joined = joined_turns(trace)
    extended = int(np.count_nonzero(joined.input_tokens > trace.input_tokens))
    if not extended:
        raise UsageError("has no effect", where="trace.turns", got="no later row of a session")
    said = f"{extended:,} later rows of sessions hold the new turn alone: the prompts and answers before it"
    said += f" are prepended, {int(joined.input_tokens.sum() - trace.input_tokens.sum()):,} tokens"
    hint = "" if turns else "; their ids share none with the turn before (--turns whole: whole prompts)"
    kept = [found for found in findings if found.kind != "broken-chain" or not _has_one_tree(joined)]
    return joined, [Finding("new-turns", extended, 0, said + hint), *kept]


def _has_one_tree(trace: Trace) -> bool:
    """Return True if each block id always follows the same id."""
    parents = np.zeros(len(trace.block_ids), np.int64)
    parents[1:] = trace.block_ids[:-1].astype(np.int64) + 1
    parents[trace.id_offsets[:-1][np.diff(trace.id_offsets) > 0]] = 0
    pairs = parents * (trace.distinct_ids + 1) + trace.block_ids
    return len(np.unique(pairs)) == trace.distinct_ids

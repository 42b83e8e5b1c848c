"""Sessions of a trace: previous and next turns, prompts that continue earlier ones, and whole jobs."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, Trace

#: What WEKA's readers append to a trace's name for a further agent or a sub-agent.
_AGENT = r"(?s)::(?:lane|sa):.*"


def previous_turns(trace: Trace) -> NDArray[np.int32]:
    """Return the previous turn of each request's session as a request index, NO_REQUEST at a first turn.

    Turns are ordered by number, equal numbers by file order. Cost: one sort of the requests.
    """
    previous = np.full(len(trace), NO_REQUEST, np.int32)
    order = np.lexsort((trace.turn, trace.session))
    same = trace.session[order[1:]] == trace.session[order[:-1]]
    same &= trace.session[order[1:]] != NO_SESSION
    previous[order[1:][same]] = order[:-1][same]
    return previous


def predecessors(trace: Trace) -> NDArray[np.int32]:
    """Return the request whose finish releases each closed-loop request; NO_REQUEST if none does.

    It is ``after`` if the trace has one, else the previous turn of the session. A closed-loop request without
    either arrives ``think_ns`` after the start of the simulation.
    """
    waits_for = previous_turns(trace)
    if len(trace.after):
        waits_for = np.where(trace.after != NO_REQUEST, trace.after, waits_for)
    if len(trace.play):
        waits_for = np.where(trace.play[waits_for] == trace.play, waits_for, NO_REQUEST)
    return np.where(trace.think_ns >= 0, waits_for, NO_REQUEST).astype(np.int32)


def continuations(trace: Trace) -> NDArray[np.int32]:
    """Return for each request the next turn of its session, if that turn continues its whole prompt.

    Block k of such a request's prompt and answer has the id at position k of the next turn's prompt, as far
    as that prompt covers it; NO_REQUEST elsewhere. Source: semantics 1.
    """
    previous = previous_turns(trace)
    later = np.flatnonzero(continues_prompt(trace, previous))
    following = np.full(len(trace), NO_REQUEST, np.int32)
    following[previous[later]] = later
    return following


def continues_prompt(trace: Trace, previous: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return for each request True if its prompt continues the whole prompt of its previous turn.

    Ids are chained, so this holds if the last full block of the earlier prompt is at the same index in this
    prompt. A prompt of less than a block counts as continued if this prompt is longer.
    """
    continues = np.zeros(len(trace), np.bool_)
    later = np.flatnonzero(previous != NO_REQUEST)
    earlier = previous[later]
    full = trace.input_tokens[earlier] // trace.block_size
    longer = trace.input_tokens[later] > trace.input_tokens[earlier]
    continues[later] = longer & (full == 0)
    ids = np.diff(trace.id_offsets)
    # a prompt that lost its oldest history may lack the id of its last block: then it continues none
    tested = longer & (full > 0) & (full <= np.minimum(ids[later], ids[earlier]))
    at = full[tested] - 1
    same = (
        trace.block_ids[trace.id_offsets[later[tested]] + at]
        == trace.block_ids[trace.id_offsets[earlier[tested]] + at]
    )
    continues[later[tested]] = same
    return continues


def unseen_changes(trace: Trace) -> int:
    """Return the number of next turns that continue a prompt ending inside a block of the trace.

    Ids name whole blocks, so changes after the last whole block of such a turn are invisible.
    """
    previous = previous_turns(trace)
    later = np.flatnonzero(continues_prompt(trace, previous))
    return int((trace.input_tokens[previous[later]] % trace.block_size > 0).sum())


def jobs_of(trace: Trace) -> NDArray[np.int32] | None:
    """Return the job number of each request, in order of their first requests; None if no request waits.

    An agent with all its sub-agents is one job, and so is a session. Cost: one pass over the requests.
    """
    return trees_of(trace) if (predecessors(trace) != NO_REQUEST).any() else None


def trees_of(trace: Trace) -> NDArray[np.int32]:
    """Return the tree number of each request, in order of their first requests.

    Requests of a session are in one tree, and so are those that wait for each other and agents side by side.
    """
    root = list(range(len(trace)))

    def find(request: int) -> int:
        while root[request] != request:
            root[request] = request = root[root[request]]
        return request

    for before in (predecessors(trace), previous_turns(trace)):
        for request in np.flatnonzero(before != NO_REQUEST).tolist():
            _join(root, find(request), find(int(before[request])))
    for request, other in trace.also_after.tolist():
        _join(root, find(request), find(other))
    opened: dict[str, int] = {}
    for session, request in zip(*np.unique(trace.session, return_index=True), strict=True):
        if 0 <= session < len(trace.session_names):
            first = opened.setdefault(re.sub(_AGENT, "", trace.session_names[session]), int(request))
            _join(root, find(int(request)), find(first))
    roots = np.array([find(request) for request in range(len(trace))], np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int32)


def _join(root: list[int], one: int, other: int) -> None:
    """Merge two jobs; the result is named by its first request."""
    first, second = sorted((one, other))
    root[second] = first


def parents(trace: Trace) -> NDArray[np.int32]:
    """Return by request the session that its session's first turn waits for; NO_SESSION if there is none."""
    first = (previous_turns(trace) == NO_REQUEST) & (trace.session != NO_SESSION)
    waits = predecessors(trace)
    started = first & (waits != NO_REQUEST)
    of_session = np.full(int(trace.session.max(initial=NO_SESSION)) + 2, NO_SESSION, np.int32)
    of_session[trace.session[started]] = trace.session[waits[started]]
    found: NDArray[np.int32] = of_session[trace.session]  # the last entry is that of no session
    return found


def planned_starts_ns(trace: Trace) -> NDArray[np.int64]:
    """Return the arrival of each request as recorded, or if that is later, with answers that take no time."""
    waits = predecessors(trace)
    starts_ns = np.where((waits == NO_REQUEST) & (trace.think_ns >= 0), trace.think_ns, trace.arrival_ns)
    later = np.flatnonzero(waits != NO_REQUEST)
    later = np.concatenate([later, trace.also_after[:, 0]])
    awaited = np.concatenate([waits[waits != NO_REQUEST], trace.also_after[:, 1]])
    while True:
        before_ns = starts_ns.copy()
        np.maximum.at(starts_ns, later, before_ns[awaited] + trace.think_ns[later])
        if np.array_equal(starts_ns, before_ns):
            return starts_ns


def job_starts_ns(trace: Trace, jobs: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return for each request the arrival of the first request of its job that waits for no other."""
    arrival_ns = np.where(trace.think_ns >= 0, np.maximum(trace.think_ns, 0), trace.arrival_ns)
    arrival_ns = np.where(predecessors(trace) == NO_REQUEST, arrival_ns, np.iinfo(np.int64).max)
    starts = np.full(int(jobs.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(starts, jobs, arrival_ns)
    found: NDArray[np.int64] = starts[jobs]
    return found

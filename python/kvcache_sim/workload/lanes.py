"""Trees of a trace (an agent with its sub-agents, a session, a request) played on a number of lanes.

A lane plays one whole tree at a time. When a play has drained, its lane takes the next tree in file order,
again from the first one after the last. No pass over the trace shares a block with another pass. The first
play of a lane may be entered inside its recording: requests before that are history, and the last of each
stream that continues is sent at first, with one token of answer, so that caches are warm. More such
requests may follow, each as the one before has returned: the next ones of the lane, or those primers again.

Source: aiperf 0.13.0, timing/trajectory_source and strategies/agentic_replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import Sha256
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value
from kvcache_sim.workload.rows import flat_positions, select_rows
from kvcache_sim.workload.sessions import planned_starts_ns, predecessors, previous_turns, trees_of
from kvcache_sim.workload.toolbox.transforms import stacked
from kvcache_sim.workload.trace import (
    NO_REQUEST,
    NO_SESSION,
    OPEN_LOOP,
    PREPARATION,
    Lanes,
    Primers,
    Trace,
    Warmup,
)

#: Requests of all plays.
_MOST_REQUESTS = 20_000_000


class Entry(Value):
    """The part of a recording, in shares of its span, in which the first play of each lane is entered."""

    low: float
    high: float
    seed: int
    #: Primers keep their recorded distances from the entry, are sent at once, or are left out.
    primers: Primers = "spread"
    #: Requests a lane after the primers: the next ones of its play, or the primers again.
    warmup_requests: int = 0
    warmup: Warmup = "advance"


class _Rows(NamedTuple):
    """Rows of a trace with their plays and their recorded starts (ns)."""

    rows: NDArray[np.int64]
    play: NDArray[np.int64]
    starts_ns: NDArray[np.int64]

    def take(self, chosen: NDArray[Any]) -> _Rows:
        return _Rows(*(column[chosen] for column in self))


class _Preparation(NamedTuple):
    """The requests before the plays: primers, and the warm-up of each lane in its order."""

    primers: _Rows
    warmup: _Rows


def in_lanes(trace: Trace, lanes: Lanes, plays: int | None = None, entry: Entry | None = None) -> Trace:
    """Return the requests of ``plays`` plays; the first ``lanes.count`` start at once, or after all primers.

    Without ``plays`` each tree is played once, and every lane has one. Primers come first in the result.
    """
    tree = trees_of(trace)
    order = np.argsort(tree, kind="stable")
    count = int(tree.max(initial=-1)) + 1
    if not count:
        return trace
    first = np.searchsorted(tree[order], np.arange(count + 1))
    plays = plays or max(count, lanes.count)
    if plays * len(trace) > _MOST_REQUESTS * count:
        what, expected = "more requests than a run holds", f"plays of at most {_MOST_REQUESTS:,} requests"
        raise UsageError(what, "workload.concurrency, workload.plays", f"{plays:,} plays", expected)
    number = np.arange(plays)
    passes, which = number // count, number % count
    sizes = np.diff(first)[which]
    rows = order[flat_positions(first[:-1][which], sizes)]
    played = _Rows(
        rows + np.repeat(passes * len(trace), sizes),
        np.repeat(number, sizes),
        planned_starts_ns(trace)[rows],
    )
    whole = trace
    if passes[-1]:
        whole = stacked([trace] * int(passes[-1] + 1))
        by_pass = trace.parent + np.arange(passes[-1] + 1)[:, None] * len(trace.session_names)
        whole = replace(whole, parent=np.where(trace.parent == NO_SESSION, NO_SESSION, by_pass).ravel())
    begins_ns = np.minimum.reduceat(played.starts_ns, np.cumsum(sizes) - sizes)
    primers = played.take(np.zeros(0, np.int64))
    if entry is not None:
        names = [trace.session_id(int(trace.session[order[at]])) or str(n) for n, at in enumerate(first[:-1])]
        ends_ns = np.maximum.reduceat(played.starts_ns, np.cumsum(sizes) - sizes)
        for lane in range(min(lanes.count, len(number))):
            at_ns = _entered_ns(entry, f"{names[which[lane]]}:{lane}", begins_ns[lane], ends_ns[lane])
            begins_ns[lane] = min(at_ns, int(ends_ns[lane]))
        history = played.starts_ns < begins_ns[played.play]
        if entry.primers != "none":
            primers = _primers(played, whole.session[played.rows], history)
        played = played.take(~history)
    first_rows = _Preparation(primers, played.take(np.zeros(0, np.int64)))
    if entry is not None and entry.warmup_requests:
        warmed = _first_of_each(played if entry.warmup == "advance" else primers, lanes.count, entry)
        first_rows = first_rows._replace(warmup=warmed)
        if entry.warmup == "advance":
            ends_ns = _recorded_ends_ns(trace)[warmed.rows % len(trace)]
            np.maximum.at(begins_ns, warmed.play, ends_ns)
            played = played.take(~np.isin(played.rows, warmed.rows))
    found = _with_waits(whole, played, begins_ns, first_rows, entry is None or entry.primers == "spread")
    return replace(found, lanes=lanes, source=trace.source, sha256=trace.sha256, warnings=trace.warnings)


def _entered_ns(entry: Entry, drawn_for: str, begin_ns: int, end_ns: int) -> int:
    """Return the instant of a recording at which a lane enters it."""
    digest = Sha256(f"{entry.seed}:{drawn_for}".encode()).digest()
    begin_s, span_s = begin_ns / NS_PER_S, (end_ns - begin_ns) / NS_PER_S
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return round(rng.uniform(begin_s + entry.low * span_s, begin_s + entry.high * span_s) * NS_PER_S)


def _primers(played: _Rows, session: NDArray[np.int32], history: NDArray[np.bool_]) -> _Rows:
    """Return the last request in the history of each stream that continues."""
    continues = np.isin(session, session[~history]) & (session != NO_SESSION)
    past = np.flatnonzero(history & continues)
    past = past[np.lexsort((played.starts_ns[past], session[past]))]
    last = np.diff(session[past], append=NO_SESSION) != 0
    return played.take(past[last])


def _first_of_each(rows: _Rows, lanes: int, entry: Entry) -> _Rows:
    """Return a lane's warm-up: its first rows by start, of which one is left, or all its rows in turn."""
    chosen = []
    for lane in range(lanes):
        played = np.flatnonzero(rows.play == lane)
        played = played[np.argsort(rows.starts_ns[played], kind="stable")]
        if entry.warmup == "advance":
            chosen.append(played[:-1][: entry.warmup_requests])
        else:
            chosen.append(np.resize(played, entry.warmup_requests if len(played) else 0))
    return rows.take(np.concatenate(chosen))


def _recorded_ends_ns(trace: Trace) -> NDArray[np.int64]:
    """Return when each request ended as recorded, by those that waited for it; else its start."""
    starts_ns, waits = planned_starts_ns(trace), predecessors(trace)
    ends_ns = np.full(len(trace), np.iinfo(np.int64).max)
    later = np.flatnonzero(waits != NO_REQUEST)
    np.minimum.at(ends_ns, waits[later], starts_ns[later] - trace.think_ns[later])
    return np.where(ends_ns == np.iinfo(np.int64).max, starts_ns, ends_ns)


def _with_waits(
    whole: Trace, played: _Rows, begins_ns: NDArray[np.int64], first_rows: _Preparation, spread: bool
) -> Trace:
    """Return primers, the warm-up and plays, each request with those that it waits for."""
    primers, warmup = first_rows
    before_ns = begins_ns[primers.play] - primers.starts_ns
    sent_ns = (before_ns.max(initial=0) - before_ns) * spread
    by_time = np.argsort(sent_ns, kind="stable")
    sent, n = len(by_time), len(by_time) + len(warmup.rows)
    trace = select_rows(whole, np.concatenate([primers.rows[by_time], warmup.rows, played.rows]))
    play = np.concatenate([np.full(n, PREPARATION), played.play]).astype(np.int32)
    arrival_ns, output_tokens = trace.arrival_ns.copy(), trace.output_tokens.copy()
    arrival_ns[:n], output_tokens[:n] = 0, 1
    arrival_ns[:sent] = sent_ns[by_time]
    think_ns, after = trace.think_ns.copy(), np.full(len(trace), NO_REQUEST, np.int32)
    after[: len(trace.after)] = trace.after
    think_ns[:n] = OPEN_LOOP
    after[:n] = NO_REQUEST
    opens_lane = np.diff(warmup.play, prepend=PREPARATION) != 0
    waited_for = np.where(opens_lane, sent - 1, np.arange(sent - 1, n - 1))
    think_ns[sent:n][waited_for >= 0] = 0
    after[sent:n] = waited_for
    pairs = trace.also_after
    released = pairs[np.isin(pairs[:, 1], sent + np.flatnonzero(~np.isin(warmup.rows, primers.rows))), 0]
    pairs = pairs[(play[pairs[:, 0]] == play[pairs[:, 1]]) & (play[pairs[:, 0]] != PREPARATION)]
    trace = replace(
        trace,
        play=play,
        arrival_ns=arrival_ns,
        think_ns=think_ns,
        after=after,
        output_tokens=output_tokens,
        also_after=pairs,
        named_tokens=np.minimum(trace.named_tokens, trace.input_tokens + output_tokens)
        if len(trace.named_tokens)
        else trace.named_tokens,
    )
    opens = (predecessors(trace) == NO_REQUEST) & (play != PREPARATION)
    think_ns[opens] = np.maximum(played.starts_ns - begins_ns[played.play], 0)[opens[n:]]
    # a turn whose sub-agent ended in the warm-up is due, unless its own stream was in it too
    before = previous_turns(trace)[released]
    think_ns[released[opens[released] & ((before < sent) | (before >= n))]] = 0
    # a turn that waits for sub-agents alone, its own stream being history, follows the last of them at once
    waiting, at = np.unique(pairs[:, 0], return_index=True)
    at = at[opens[waiting]]
    if len(at):
        after[pairs[at, 0]], think_ns[pairs[at, 0]] = pairs[at, 1], 0
    return replace(trace, after=after, also_after=np.delete(pairs, at, axis=0))

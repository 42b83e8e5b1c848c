"""Transforms of traces, each with a check of its invariants."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import BlockSplit
from kvcache_sim.base.errors import InvariantError, TraceError, UsageError
from kvcache_sim.base.rng import derive_seed
from kvcache_sim.workload.readers.findings import open_span
from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.sessions import predecessors, trees_of
from kvcache_sim.workload.toolbox.stats import unbounded_hits
from kvcache_sim.workload.trace import COLUMNS, NO_REQUEST, NO_SESSION, OPEN_LOOP, WHERE_EMPTY, Trace


def require(kept: bool, transform: str, promise: str) -> None:
    """Raise ``InvariantError`` naming the invariant if a transform's output violates it."""
    if not kept:
        raise InvariantError(f"trace {transform} broke its invariant: {promise}")


def same_requests(a: Trace, b: Trace) -> bool:
    """Return True if two traces have the same lengths, shared blocks, sessions and turns, row by row."""
    return all(
        np.array_equal(getattr(a, column), getattr(b, column))
        for column in ("input_tokens", "output_tokens", "id_offsets", "block_ids", "session", "turn")
    )


def stacked(traces: list[Trace]) -> Trace:
    """Return the concatenated rows of all traces, which share no id or session.

    Ids are renumbered; sessions are named ``<number of the trace>:<name>``. Raises ``UsageError`` if block
    sizes differ.
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

    def moved(column: NDArray[np.int32], by: int, none: int) -> NDArray[np.int32]:
        return np.where(column == none, none, column + by).astype(np.int32)

    def joined(name: str, none: int) -> NDArray[np.int64]:
        """Return a column of all traces; empty if none of them has it."""
        given = [getattr(t, name) for t in traces]
        if not any(map(len, given)):
            return np.empty(0, np.int64)
        full = [c if len(c) else np.full(len(t), none, np.int64) for c, t in zip(given, traces, strict=True)]
        return np.concatenate(full)

    columns: dict[str, Any] = {name: np.concatenate([getattr(t, name) for t in traces]) for name in COLUMNS}
    columns |= {name: joined(name, none) for name, none in WHERE_EMPTY.items()}
    afters = [t.after if len(t.after) else np.full(len(t), NO_REQUEST, np.int32) for t in traces]
    waits = any(len(t.after) for t in traces)
    return replace(
        traces[0],
        **columns,
        id_offsets=np.concatenate(
            [[0], *(t.id_offsets[1:] + r for t, r in zip(traces, references, strict=False))]
        ),
        block_ids=np.concatenate([t.block_ids + np.uint32(k) for t, k in zip(traces, ids, strict=False)]),
        session=np.concatenate(
            [moved(t.session, k, NO_SESSION) for t, k in zip(traces, sessions, strict=False)]
        ),
        id_names=np.empty(0, np.int64),
        session_names=[f"{k}:{name}" for k, t in enumerate(traces) for name in t.session_names],
        extra=[e for t in traces for e in (t.extra or [""] * len(t))] if any(t.extra for t in traces) else [],
        after=np.concatenate(
            [moved(a, int(r), NO_REQUEST) for a, r in zip(afters, rows, strict=False) if waits]
            or [np.empty(0, np.int32)]
        ),
        also_after=np.concatenate(
            [(t.also_after + int(r)).astype(np.int32) for t, r in zip(traces, rows, strict=False)]
        ),
        source=" + ".join(dict.fromkeys(t.source for t in traces)),
        sha256="",
        warnings=(),
    )


def anonymise(trace: Trace) -> Trace:
    """Return the trace with ids and sessions numbered by first appearance, times from 0, no other members.

    Lengths, sharing and time differences, which a simulation needs, are unchanged. Invariant: the sharing of
    blocks and sessions is the same, and no name of the input is left.
    """
    opens = trace.think_ns == OPEN_LOOP
    start = int(trace.arrival_ns[opens].min()) if bool(opens.any()) else 0
    out = replace(
        trace,
        arrival_ns=np.maximum(trace.arrival_ns - start, 0),
        id_names=np.empty(0, np.int64),
        session_names=[f"s{k}" for k in range(len(trace.session_names))],
        extra=[],
        source="",
        sha256="",
        warnings=(),
    )
    kept = np.array_equal(out.arrival_ns[opens] + start, trace.arrival_ns[opens])
    require(kept and same_requests(trace, out), "anonymise", "sharing and distances of time stay")
    return out


def cut(trace: Trace, from_ns: int, to_ns: int) -> Trace:
    """Return the requests that arrive in [from, to), with ``from`` as time 0.

    Closed-loop requests stay with the request they wait for. Invariant: time differences, lengths and ids are
    unchanged, and no request waits for an omitted one.
    """
    if to_ns <= from_ns:
        raise UsageError(
            "an empty window", where="--to", got=f"{to_ns} ns", expected=f"more than {from_ns} ns"
        )
    chosen = _chosen(trace, from_ns, to_ns)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        raise TraceError("no request arrives in the window", where=trace.source)
    part = select_rows(trace, rows)
    out = replace(part, arrival_ns=np.maximum(part.arrival_ns - from_ns, 0))
    opens = part.think_ns == OPEN_LOOP
    kept = np.array_equal(out.arrival_ns[opens] + from_ns, trace.arrival_ns[rows][opens])
    require(
        kept and bool(np.all(out.arrival_ns[opens] < to_ns - from_ns)),
        "slice",
        "arrivals keep their distances",
    )
    waits = predecessors(trace)[rows]
    orphans = (waits != NO_REQUEST) & ~chosen[waits]
    require(not bool(orphans.any()), "slice", "no request waits for one left out")
    return out


def _chosen(trace: Trace, from_ns: int, to_ns: int) -> NDArray[np.bool_]:
    """Return the mask of included rows: by arrival, or with the first of the requests they wait for."""
    waits = predecessors(trace)
    root = np.where(waits == NO_REQUEST, np.arange(len(trace)), waits)
    while True:
        above = root[root]
        if np.array_equal(above, root):
            break
        root = above
    inside = (trace.arrival_ns >= from_ns) & (trace.arrival_ns < to_ns)
    return inside[root]


def head(trace: Trace, requests: int) -> Trace:
    """Return the first ``requests`` rows. Invariant: they are unchanged."""
    if requests < 1:
        raise UsageError("at least one request must be left", where="N", got=str(requests), expected="N ≥ 1")
    count = min(requests, len(trace))
    out = select_rows(trace, np.arange(count))
    references = int(trace.id_offsets[count])
    same = np.array_equal(out.block_ids, trace.block_ids[:references])
    same &= np.array_equal(out.arrival_ns, trace.arrival_ns[:count])
    require(bool(same) and len(out) == count, "head", "the rows are the first of the input")
    return out


def part(trace: Trace, rows: slice) -> Trace:
    """Return the requests of a slice. Invariant: they are unchanged, and wait for none outside."""
    try:
        chosen = range(len(trace))[rows] if isinstance(rows, slice) else range(0)
    except (TypeError, ValueError):  # ends that are no integers, or a step of 0
        chosen = range(0)
    if not len(chosen) or chosen.step < 0:
        raise UsageError(
            "not requests of the trace", where=trace.source, got=str(rows), expected="trace[from:to]"
        )
    waits = predecessors(trace)[chosen]
    if not np.isin(waits, [NO_REQUEST, *chosen]).all():
        hint = "kvsim trace slice keeps requests with those they wait for"
        raise UsageError(
            "requests that wait for others outside", where=trace.source, got=str(rows), hint=hint
        )
    return select_rows(trace, np.array(chosen))


def merge(traces: list[Trace]) -> Trace:
    """Return all requests in order of arrival; on ties the earlier trace first. Nothing is shared.

    Invariant: each trace is complete in the output, in its own order, and the distinct blocks add up.
    """
    together = stacked(traces)
    order = np.argsort(together.arrival_ns, kind="stable")
    out = select_rows(together, order)
    require(out.distinct_ids == sum(t.distinct_ids for t in traces), "merge", "distinct blocks add up")
    location = np.empty(len(order), np.int64)
    location[order] = np.arange(len(order))
    first = 0
    for trace in traces:
        found = select_rows(out, location[first : first + len(trace)])
        alone = select_rows(trace, np.arange(len(trace)))
        require(same_requests(found, alone), "merge", "each trace is whole in the output")
        first += len(trace)
    return out


def rechunk(trace: Trace, block_size: int) -> Trace:
    """Return the trace with ids of ``block_size`` tokens, a divisor of its own block size.

    Id b becomes the ids (b, 0), (b, 1), …; a partial last block becomes as many as its tokens need.
    Ids are renumbered. Invariant: two prompts share exactly the tokens they shared before (fewer if the trace
    uses one id at two sizes).
    """
    check_divisor(trace.block_size, block_size)
    return split(trace, BlockSplit(trace.block_size, block_size), block_size)


def check_divisor(old: int, block_size: int) -> None:
    """Raise ``UsageError`` unless blocks of ``old`` tokens can be split into such of ``block_size``."""
    if block_size == old:
        hint = "the trace is as asked; --trace-block-size corrects what was detected"
        raise UsageError("the trace's own block size", "--to", str(block_size), "a smaller one", hint)
    if block_size < 1 or old % block_size:
        raise UsageError(
            "not a divisor of the trace's block size",
            where="--to",
            got=str(block_size),
            expected=f"a divisor of {old}",
        )


def split(trace: Trace, blocks: BlockSplit, block_size: int) -> Trace:
    """Return the next rows of a trace that is rechunked, with ids numbered over all rows so far."""
    try:
        ids, offsets = blocks.rows(trace.block_ids, trace.id_offsets, trace.input_tokens)
    except OverflowError as error:
        raise UsageError(str(error), where="--to", got=str(block_size)) from None
    covered = np.minimum(np.diff(trace.id_offsets) * trace.block_size, trace.input_tokens)
    require(np.array_equal(np.diff(offsets), -(-covered // block_size)), "rechunk", "as many as tokens need")
    return replace(
        trace, block_size=block_size, block_ids=ids, id_offsets=offsets, id_names=np.empty(0, np.int64)
    )


def repeat(trace: Trace, times: int, gap_ns: int) -> Trace:
    """Return ``times`` copies of the trace, each starting ``gap_ns`` after the last arrival before it.

    Invariant: every copy equals the trace, and no two share a block.
    """
    check_times(times)
    span = copy_span_ns(open_span(trace)[2], gap_ns, times)
    copies = [replace(trace, arrival_ns=trace.arrival_ns + k * span) for k in range(times)]
    out = stacked(copies)
    require(out.distinct_ids == times * trace.distinct_ids, "repeat", "no two copies share a block")
    n = len(trace)
    last = select_rows(out, np.arange((times - 1) * n, times * n))
    require(same_requests(last, select_rows(trace, np.arange(n))), "repeat", "every copy is the trace itself")
    return out


def check_times(times: int) -> None:
    """Raise ``UsageError`` for a number of copies out of range."""
    if not 1 <= times <= 10_000:
        raise UsageError("times out of range", where="TIMES", got=str(times), expected="1 to 10000")


def copy_span_ns(last_ns: int, gap_ns: int, times: int) -> int:
    """Return the ns from one copy to the next of a trace whose last request arrives at ``last_ns``."""
    span = last_ns + gap_ns
    if (times - 1) * span + last_ns >= 1 << 63:
        raise UsageError("the copies end beyond 292 years", where="TIMES", got=str(times))
    return span


def parse_speed(text: str) -> Fraction:
    """Return a speed such as ``2``, ``0.5`` or ``3/2`` exactly."""
    try:
        return Fraction(text) if len(text) < 40 and "e" not in text.lower() else Fraction(0)
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            "not a speed", where="--speed", got=repr(text), expected="a number such as 2, 0.5 or 3/2"
        ) from None


def scale(trace: Trace, speed: Fraction) -> Trace:
    """Return the trace with every arrival and think time divided by ``speed`` (2: twice as fast).

    Quotients are exact, rounded down once to whole ns. Invariant: order, ties of integer multiples, lengths
    and ids are unchanged; no time is a ns below its exact quotient.
    """
    if not Fraction(1, 10**9) <= speed <= 10**9:
        raise UsageError("speed out of range", where="SPEED", got=str(speed), expected="1e-9 to 1e9")
    think = trace.think_ns.copy()
    waits = think != OPEN_LOOP
    think[waits] = _divided(think[waits], speed)
    out = replace(trace, arrival_ns=_divided(trace.arrival_ns, speed), think_ns=think)
    order = np.argsort(trace.arrival_ns, kind="stable")
    require(bool(np.all(np.diff(out.arrival_ns[order]) >= 0)), "scale", "the order of arrivals stays")
    require(same_requests(trace, out), "scale", "lengths and ids stay")
    return out


def _divided(times_ns: NDArray[np.int64], speed: Fraction) -> NDArray[np.int64]:
    """Return times / speed in whole ns, with Python's integers, so that nothing overflows."""
    quotients = [t * speed.denominator // speed.numerator for t in times_ns.tolist()]
    if any(q >= 1 << 63 for q in quotients):
        raise UsageError("times end beyond 292 years", where="SPEED", got=str(speed))
    return np.array(quotients, np.int64)


def sessions(trace: Trace, count: int, seed: int) -> Trace:
    """Return ``count`` sessions with all their sub-agents, drawn from the seed; a larger count keeps those.

    Raises UsageError for a trace with fewer sessions, or without any.
    """
    tree = trees_of(trace)
    found = int(tree.max(initial=-1)) + 1 if bool(np.any(trace.session != NO_SESSION)) else 0
    if count > found:
        hint = "workload.concurrency plays sessions again" if found else "trace.speed changes the load"
        got, expected = f"{count:,}", f"at most {found:,}" if found else "a trace with sessions"
        raise UsageError("more sessions than the trace has", "trace.sessions", got, expected, hint)
    drawn = np.array([derive_seed(seed, f"trace.sessions:{k}") for k in range(found)], np.uint64)
    rows = np.flatnonzero(np.isin(tree, np.argsort(drawn, kind="stable")[:count]))
    return select_rows(trace, rows)


#: Most depths searched for the first one at which prompts diverge.
_DEEPEST = 64


def sample(trace: Trace, fraction: float, seed: int) -> Trace:
    """Return about ``fraction`` of the units of a trace, chosen by name from the seed.

    Units are sessions if every row has one, else groups of prompts with the same block at the first depth at
    which prompts diverge. The choice of a unit depends only on its number and the seed. Invariant: units are
    whole, so each kept prompt hits the same blocks in an unbounded cache as before, if it hit more than the
    blocks shared by all groups.
    """
    if not 0 < fraction <= 1:
        raise UsageError(
            "fraction out of range", where="FRACTION", got=str(fraction), expected="above 0, up to 1"
        )
    sessions = bool(np.all(trace.session != NO_SESSION))
    depth = -1 if sessions else parting_depth(trace)
    unit = trace.session.astype(np.int64) if sessions else prefix_groups(trace, depth)
    limit = int(fraction * 2**64)
    units = np.unique(unit)
    chosen = np.array([derive_seed(seed, f"trace.sample:{u}") < limit for u in units.tolist()], np.bool_)
    kept = np.isin(unit, units[chosen])
    if not kept.any():
        raise TraceError(
            "the sample is empty", where=trace.source, got=f"{len(units)} units", hint="a larger FRACTION"
        )
    rows = np.flatnonzero(kept)
    out = select_rows(trace, rows)
    require(not bool(np.isin(unit[~kept], unit[kept]).any()), "sample", "units are whole")
    if not sessions and _chained(trace):
        before, after = unbounded_hits(trace).blocks[rows], unbounded_hits(out).blocks
        deep = before > depth
        require(np.array_equal(before[deep], after[deep]), "sample", "reuse within a group is kept")
    return out


def _chained(trace: Trace) -> bool:
    """Return True if every block always follows the same block."""
    before = np.empty(len(trace.block_ids), np.int64)
    before[1:] = trace.block_ids[:-1]
    before[trace.id_offsets[:-1][np.diff(trace.id_offsets) > 0]] = -1
    parent = np.empty(trace.distinct_ids, np.int64)
    parent[trace.block_ids] = before
    return bool(np.array_equal(parent[trace.block_ids], before))


def parting_depth(trace: Trace) -> int:
    """Return the first depth (in blocks) at which the prompts have different blocks."""
    counts = np.diff(trace.id_offsets)
    for depth in range(_DEEPEST):
        deep = counts > depth
        if len(np.unique(trace.block_ids[trace.id_offsets[:-1][deep] + depth])) > 1:
            return depth
    return 0


def prefix_groups(trace: Trace, depth: int) -> NDArray[np.int64]:
    """Return for each row the block at ``depth``; a shorter prompt is a group of its own."""
    counts = np.diff(trace.id_offsets)
    group = trace.distinct_ids + np.arange(len(trace), dtype=np.int64)
    deep = counts > depth
    group[deep] = trace.block_ids[trace.id_offsets[:-1][deep] + depth]
    return group
